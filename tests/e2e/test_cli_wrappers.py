"""The command line as the client of a running stack: what takes more than one request, or looks at the whole store."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from e2e.client import CONTEXT
from e2e.deployment import Deployment, memoree, until
from memoree import limits

pytestmark = pytest.mark.stack

Json = dict[str, Any]


def result_of(stack: Deployment, tenant: str, *line: str | Path) -> Json:
    """The result of a command that must succeed."""
    variables = {
        "MEMOREE_ENDPOINT": stack.url,
        "MEMOREE_TOKEN": stack.tokens[tenant],
        "MEMOREE_CONTEXT": json.dumps(CONTEXT),
    }
    done = memoree(*line, **variables)
    assert done.returncode == 0, done
    result: Json = json.loads(done.stdout)["result"]
    return result


def test_a_large_file_goes_straight_to_the_store(stack: Deployment, tenant: str, tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(tenant.encode() * (2 * limits.ARTIFACT_BYTES_MAX // len(tenant)))
    made = result_of(stack, tenant, "artifact", "upload", film)
    assert (made["size_bytes"], made["blob_hash"]) == (film.stat().st_size, blake3(film.read_bytes()).hexdigest())
    shown = result_of(stack, tenant, "artifact", "get", made["artifact_id"], "--metadata-only")
    assert shown["revision_id"] == made["revision_id"]


def test_feedback_is_recorded_by_one_process_and_read_from_another(stack: Deployment, tenant: str) -> None:
    line = ["feedback", "record", "which", "cone", "--outcome", "miss"]
    first = result_of(stack, tenant, *line, "--retain-query")
    second = result_of(stack, tenant, *line)
    assert first["query_fingerprint"] == second["query_fingerprint"]

    def listed() -> list[str]:
        return [record["feedback_id"] for record in result_of(stack, tenant, "feedback", "list")["feedback"]]

    until(lambda: listed() == [second["feedback_id"], first["feedback_id"]], "both records, by whichever process")
    assert [case["query"] for case in result_of(stack, tenant, "feedback", "export")["cases"]] == ["which cone"]


def test_a_query_that_is_not_retained_is_in_no_file_but_the_queue(stack: Deployment, tenant: str) -> None:
    query, note = (f"w{uuid.uuid4().hex}" for _ in range(2))
    result_of(stack, tenant, "feedback", "record", query, "--outcome", "miss", "--note", note)
    assert holders(stack.data_dir, note)
    assert holders(stack.data_dir, query) <= {"queue.sqlite3", "queue.sqlite3-wal"}


def holders(folder: Path, word: str) -> set[str]:
    """The names of the files below that hold the word. Some may go while they are looked at."""
    found = set()
    for path in folder.rglob("*"):
        try:
            if path.is_file() and word.encode() in path.read_bytes():
                found.add(path.name)
        except FileNotFoundError:
            continue
    return found
