"""What is large travels another way, arrives byte for byte, and leaves nothing behind."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from e2e import bucket
from e2e.client import claim
from e2e.deployment import Deployment, until

pytestmark = pytest.mark.stack

KIB = 1024
LIMIT = 8 * KIB * KIB


def body_of(record: dict[str, Any]) -> bytes:
    content = record["content"]
    return content["data"].encode() if content["type"] == "text" else base64.b64decode(content["data"])


def note_of(body: bytes, *, binary: bool) -> dict[str, Any]:
    content = (
        {"type": "base64", "data": base64.b64encode(body).decode()}
        if binary
        else {"type": "text", "data": body.decode()}
    )
    media_type = "application/octet-stream" if binary else "text/plain"
    return {"kind": "note", "title": "large", "media_type": media_type, "content": content}


@pytest.mark.fault_class(6)
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("size", [2_100, LIMIT - 1, LIMIT])
def test_a_body_up_to_the_limit_comes_back_byte_for_byte(
    stack: Deployment, tenant: str, size: int, binary: bool
) -> None:
    words = b"".join(b"word %d of the body\n" % number for number in range(size // 10))
    body = random.Random(size).randbytes(size) if binary else words[:size]
    with stack.client(tenant) as client:
        written = client.decided("artifact.put", note_of(body, binary=binary), key="large")
        read = client.ok("artifact.get", {"artifact_id": written["result"]["artifact_id"]})
        assert body_of(read) == body


@pytest.mark.fault_class(6)
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_one_byte_more_is_refused_with_the_limit_and_stores_nothing(
    stack: Deployment, tenant: str, binary: bool
) -> None:
    with stack.client(tenant) as client:
        error = client.refused("CONTENT_TOO_LARGE", "artifact.put", note_of(b"x" * (LIMIT + 1), binary=binary))
        assert str(LIMIT) in error["message"]
        assert client.last_commit_seq() == 0
    assert bucket.keys(stack, tenant, "") == []


def test_large_commands_are_parked_and_removed_once_they_are_acknowledged(stack: Deployment, tenant: str) -> None:
    """128 KiB of statement double in JSON, and no longer fit into a message; text and provenance of 64 KiB do."""
    statement = '"' * (128 * KIB)
    text, provenance = "é" * (32 * KIB), {"notes": "n" * (64 * KIB - 100)}
    artifact = {"kind": "note", "title": "t", "content": {"type": "text", "data": text}, "provenance": provenance}
    with stack.client(tenant) as client:
        with stack.stopped_writer():
            pending = [
                client.post(op, payload, key=op, headers={"Prefer": "respond-async"})
                for op, payload in (("claim.assert", claim(statement)), ("artifact.put", artifact))
            ]
            assert [answer.status_code for answer in pending] == [202, 202]
            attempt_id = pending[0].json()["error"]["details"]["attempt_id"]
            assert bucket.keys(stack, tenant, "commands/") == [f"commands/{attempt_id}"]
        claim_id = client.decided("claim.assert", claim(statement), key="claim.assert")["result"]["claim_id"]
        assert client.ok("claim.get", {"claim_id": claim_id})["statement"] == statement
        artifact_id = client.decided("artifact.put", artifact, key="artifact.put")["result"]["artifact_id"]
        record = client.ok("artifact.get", {"artifact_id": artifact_id})
        assert (record["content"]["data"], record["provenance"]) == (text, provenance)
        assert client.last_commit_seq() == 2
    until(lambda: bucket.keys(stack, tenant, "commands/") == [], "the removal of the parked commands")


def test_text_over_16_kib_is_a_blob_and_found_by_its_words(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        for size in (40 * KIB, 300 * KIB):
            word = f"needle{size}"
            body = (f"{word} " + "hay " * (size // 4)).encode()
            written = client.decided("artifact.put", note_of(body, binary=False), key=word)["result"]
            hits = client.ok("search", {"query": word})["hits"]
            assert [hit["entity_id"] for hit in hits] == [written["artifact_id"]]
    assert len(bucket.keys(stack, tenant, "blobs/")) == 2
