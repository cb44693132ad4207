"""`{"type": "upload"}` as content: what a request may name, before anything was sent (`docs/streaming.md`)."""

from __future__ import annotations

from typing import Any

import pytest

from memoree.ids import new_upload_id

from .door import Door
from .workbench import Workbench

CARRIERS = ["artifact.put", "artifact.revise", "source.ingest"]


def naming(specimen_inputs: dict[str, Any], op: str, content: Any) -> dict[str, Any]:
    return {**specimen_inputs[op], "content": content}


@pytest.mark.parametrize("op", CARRIERS)
def test_an_upload_that_never_was_is_not_found(door: Door, specimen_inputs: dict[str, Any], op: str) -> None:
    with door.nothing_written():
        content = {"type": "upload", "upload_id": new_upload_id(0)}
        error = door.refused("NOT_FOUND", op, naming(specimen_inputs, op, content))
        assert content["upload_id"] in error["message"]


@pytest.mark.parametrize("op", CARRIERS)
@pytest.mark.parametrize(
    "content",
    [
        {"type": "upload"},
        {"type": "upload", "upload_id": None},
        {"type": "upload", "upload_id": ["upl_"]},
        {"type": "upload", "upload_id": "upl_01M8PH26EJXJ6FX1M8AXJ6N99"},
        {"type": "upload", "upload_id": "art_01M8PH26EJXJ6FX1M8AXJ6N993"},
        {"type": "upload", "upload_id": "upl_01M8PH26EJXJ6FX1M8AXJ6N993\n"},
        {"type": "upload", "upload_id": "upl_01M8PH26EJXJ6FX1M8AXJ6N993", "data": ""},
        {"type": "upload", "data": "x"},
        {"type": "Upload", "upload_id": "upl_01M8PH26EJXJ6FX1M8AXJ6N993"},
    ],
)
def test_content_that_is_no_upload_is_refused(
    door: Door, specimen_inputs: dict[str, Any], op: str, content: dict[str, Any]
) -> None:
    with door.nothing_written():
        door.refused("INVALID_REQUEST", op, naming(specimen_inputs, op, content))


def test_responses_never_speak_of_uploads(door: Door, bench: Workbench) -> None:
    results = door.ok("schema")["result_types"]
    assert "upload_id" not in str(results["artifact.get"])
    assert bench.get(bench.put()["artifact_id"])["content"]["type"] == "text"
