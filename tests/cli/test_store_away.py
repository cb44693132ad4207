"""A job that somebody waits for says at once that the deployment's store does not answer."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

ANSWER_SECONDS_MAX = 45.0
"""Of a job itself, which is patient, it takes minutes."""


def test_a_job_on_a_store_that_is_away_says_so_at_once(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        environment = {
            **os.environ,
            "MEMOREE_BUCKET": "memoree",
            "MEMOREE_ENDPOINT_URL": address,
            "MEMOREE_ACCESS_KEY_ID": "key",
            "MEMOREE_SECRET_ACCESS_KEY": "secret",
            "MEMOREE_QUEUE_URL": f"sqlite://{tmp_path / 'queue.sqlite3'}",
            "MEMOREE_RUNTIME_DIR": str(tmp_path / "runtime"),
        }
        asked = ("erase", "art_01ARZ3NDEKTSV4RRFFQ69G5FAV", "--reason", "it was one", "--tenant", "acme")
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "memoree.cli.main", *asked], env=environment, capture_output=True, text=True
        )
    assert time.monotonic() - began < ANSWER_SECONDS_MAX
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (1, "TRANSPORT_ERROR")
    assert "does not answer" in error["message"] and address in error["message"]
