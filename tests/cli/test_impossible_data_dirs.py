"""A data directory that cannot be one is said to be, by reads as well as by writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCTOR = {"request_id": "req_mine", "op": "doctor", "input": {}}


def call(data_dir: Path, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "memoree.cli.main", "call"],
        input=json.dumps(request).encode(),
        capture_output=True,
        env={**os.environ, "MEMOREE_DATA_DIR": str(data_dir)},
    )
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("below", ["", "child"])
def test_a_read_from_a_path_that_cannot_be_a_directory_is_refused_under_its_own_id(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("precious")
    status, answer = call(tmp_path / "file" / below, DOCTOR)
    assert (status, answer["request_id"], answer["error"]["code"]) == (2, "req_mine", "CONFIG_ERROR")


def test_a_name_too_long_for_the_disk_is_refused(tmp_path: Path) -> None:
    status, answer = call(tmp_path / ("x" * 300), DOCTOR)
    assert (status, answer["request_id"], answer["error"]["code"]) == (2, "req_mine", "CONFIG_ERROR")


def test_a_read_where_no_store_is_leaves_nothing(tmp_path: Path) -> None:
    status, answer = call(tmp_path / "none", DOCTOR)
    assert (status, answer["result"]["last_commit_seq"]) == (0, 0)
    assert not (tmp_path / "none").exists()


def test_a_read_does_not_take_a_lost_database_for_an_empty_store(tmp_path: Path) -> None:
    context = {"workspace_id": "w", "project_id": "p"}
    claim = {"claim_type": "fact", "statement": "kept"}
    request = {"request_id": "r", "op": "claim.assert", "idempotency_key": "k", "context": context, "input": claim}
    assert call(tmp_path / "data", request)[0] == 0
    for leftover in (tmp_path / "data").glob("memoree.sqlite3*"):
        leftover.unlink()
    status, answer = call(tmp_path / "data", DOCTOR)
    assert (status, answer["error"]["code"]) == (1, "INTEGRITY_ERROR")
