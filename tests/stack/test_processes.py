"""How an api process starts: without what only other roles need, and with the collector back at work when it serves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

REPORT = """
import asyncio, gc, json, sys
from memoree.stack import processes
from memoree.settings import StackSettings

def run_api(settings, listening_fd, metrics_fd):
    paused = not gc.isenabled()
    async def serve():
        async with processes._service(settings):
            print(json.dumps({
                "paused": paused, "enabled": gc.isenabled(), "frozen": gc.get_freeze_count(), "modules": [*sys.modules],
            }))
    asyncio.run(serve())

processes.run_api = run_api
sys.exit(processes.main(["api", "0", "0"]))
"""
OF_OTHERS = ("memoree.writer", "memoree.embedded", "memoree.cli", "mangum", "rapidfuzz")


def test_an_api_loads_nothing_of_other_roles_and_collects_again_once_it_serves(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "MEMOREE_BUCKET": "nowhere",
        "MEMOREE_ENDPOINT_URL": "http://127.0.0.1:9",
        "MEMOREE_ACCESS_KEY_ID": "a",
        "MEMOREE_SECRET_ACCESS_KEY": "b",
        "MEMOREE_QUEUE_URL": f"sqlite://{tmp_path}/queue.sqlite3",
        "MEMOREE_RUNTIME_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", REPORT], env=environment, capture_output=True, check=True, timeout=60, text=True
    )
    report = json.loads(done.stdout)
    assert report["paused"] and report["enabled"] and report["frozen"] > 0
    assert "aiobotocore.session" in report["modules"]
    assert not [name for name in report["modules"] if name.startswith(OF_OTHERS)]
