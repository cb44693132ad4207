"""What the README prints is what works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memoree.assembly import embedded_service

README = (Path(__file__).parents[2] / "README.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", README, flags=re.MULTILINE | re.DOTALL))


def commands(section: str) -> list[str]:
    """The lines a reader would type, in order."""
    blocks = re.findall(r"```console\n(.*?)```", SECTIONS[section], flags=re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.fault_class(7)
def test_the_first_session_works_as_printed(tmp_path: Path) -> None:
    typed = [
        line for line in commands("Try it") if line.startswith(("memoree ", "echo ")) and "request.json" not in line
    ]
    assert [line.split()[1] for line in typed if line.startswith("memoree")] == ["init", "artifact", "claim", "search"]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "share"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    (tmp_path / "kiln").mkdir()
    done = subprocess.run(
        ["bash", "-euc", "\n".join(typed)], cwd=tmp_path / "kiln", env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(answer["ok"] for answer in answers)
    assert {hit["entity_type"] for hit in answers[-1]["result"]["hits"]} == {"artifact", "claim"}


@pytest.mark.fault_class(7)
def test_the_request_of_the_http_example_succeeds_as_printed(tmp_path: Path) -> None:
    (body,) = re.findall(r"-d '(\{.*?\})'\n", SECTIONS["Serve it"], flags=re.DOTALL)
    service = embedded_service(tmp_path)
    try:
        assert json.loads(service.call_bytes(body.encode()))["ok"] is True
    finally:
        service.close_sync()
