"""Large content through a running stack: straight to the store, proven by the writer, streamed back by any api."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from blake3 import blake3

from e2e import bucket
from e2e.client import Client, claim
from e2e.deployment import ROLE_OF_WRITER, Deployment, child_pids, until

pytestmark = pytest.mark.stack

Json = dict[str, Any]
MIB = 1024 * 1024
LARGE = 64 * MIB
GROWTH_MIB_MAX = 48
"""Of a process that has 64 MiB pass through it: windows, buffers, and what the allocator keeps."""
UPLOADS = "/v1/artifacts/uploads"
STORE_SECONDS_MAX = 60.0


def block(seed: int) -> bytes:
    return random.Random(seed).randbytes(MIB)


def blocks(seed: int, size: int) -> Iterator[bytes]:
    """Bytes nobody else has, without ever holding all of them."""
    piece = block(seed)
    for start in range(0, size, MIB):
        yield piece[: min(MIB, size - start)]


def digest_of(seed: int, size: int) -> str:
    hasher = blake3()
    for piece in blocks(seed, size):
        hasher.update(piece)
    return hasher.hexdigest()


def declared(client: Client, seed: int, size: int) -> Json:
    answer = client.http.post(UPLOADS, json={"size_bytes": size, "blob_hash": digest_of(seed, size)})
    assert answer.status_code == 201, answer.text
    ticket: Json = answer.json()
    return ticket


def sent(client: Client, seed: int, size: int, *, other: int | None = None) -> str:
    """The id of an upload whose bytes the store has; `other` sends those of another seed."""
    ticket = declared(client, seed, size)
    answer = httpx.put(
        ticket["url"],
        content=blocks(seed if other is None else other, size),
        headers=ticket["headers"],
        timeout=STORE_SECONDS_MAX,
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
    upload_id: str = ticket["upload_id"]
    return upload_id


def naming(upload_id: str, **fields: Any) -> Json:
    content = {"type": "upload", "upload_id": upload_id}
    return {"kind": "file", "title": "large", "media_type": "application/octet-stream", "content": content} | fields


def content_path(record: Json) -> str:
    return f"/v1/artifacts/{record['artifact_id']}/revisions/{record['revision_id']}/content"


def downloaded(client: Client, record: Json) -> str:
    """The digest of a whole download."""
    hasher = blake3()
    with client.http.stream("GET", content_path(record)) as answer:
        assert answer.status_code == 200
        for chunk in answer.iter_bytes():
            hasher.update(chunk)
    return hasher.hexdigest()


def rss_mib(pids: list[int]) -> float:
    """The largest resident memory that any of the processes ever had."""
    peaks = [line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in line]
    return max(int(line.split()[1]) / 1024 for line in peaks)


def programs(stack: Deployment) -> dict[str, list[int]]:
    """The api processes and the writer, without their launchers."""
    leaders = {child["name"]: child["pid"] for child in stack.published()["children"] if child["pid"]}
    below = {name: child_pids(pid) or [pid] for name, pid in leaders.items() if "seaweed" not in name}
    return {
        "api": [pid for name, pids in below.items() if name.startswith("api") for pid in pids],
        "writer": below[ROLE_OF_WRITER],
    }


@pytest.mark.fault_class(54)
@pytest.mark.fault_class(6)
def test_64_mib_pass_through_without_being_held(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        client.claim("the tenant is known")
        small = client.ok("artifact.put", naming(sent(client, 1, 9 * MIB)))
        downloaded(client, small)  # everything is imported and every pool is filled
        before = {name: rss_mib(pids) for name, pids in programs(stack).items()}
        record = client.decided("artifact.put", naming(sent(client, 2, LARGE)), key=uuid.uuid4().hex)["result"]
        assert (record["size_bytes"], record["blob_hash"]) == (LARGE, digest_of(2, LARGE))
        assert [downloaded(client, record) for _ in range(3)] == [digest_of(2, LARGE)] * 3
        after = {name: rss_mib(pids) for name, pids in programs(stack).items()}
        growth = {name: after[name] - before[name] for name in before}
        assert all(mib < GROWTH_MIB_MAX for mib in growth.values()), growth
        refused = client.refused("CONTENT_TOO_LARGE", "artifact.get", {"artifact_id": record["artifact_id"]})
        assert str(8 * MIB) in refused["message"]


@pytest.mark.fault_class(54)
def test_64_mib_sent_to_the_service_itself_are_not_held_either(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        client.claim("the tenant is known")
        _send_to_service(client, 3, 9 * MIB)
        before = rss_mib(programs(stack)["api"])
        upload_id = _send_to_service(client, 4, LARGE)
        assert rss_mib(programs(stack)["api"]) - before < GROWTH_MIB_MAX
        record = client.decided("artifact.put", naming(upload_id), key=uuid.uuid4().hex)["result"]
        assert downloaded(client, record) == digest_of(4, LARGE)


def _send_to_service(client: Client, seed: int, size: int) -> str:
    upload_id: str = declared(client, seed, size)["upload_id"]
    for _ in range(2):  # whoever did not see the answer sends it again
        answer = client.http.put(
            f"{UPLOADS}/{upload_id}/content", content=blocks(seed, size), headers={"Content-Length": str(size)}
        )
        assert answer.status_code == 204, answer.text
    return upload_id


def test_an_upload_leaves_one_blob_and_its_declaration(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        first, second = sent(client, 5, 9 * MIB), sent(client, 5, 9 * MIB)
        one = client.decided("artifact.put", naming(first), key="one")["result"]
        other = client.decided("artifact.put", naming(second), key="other")["result"]
        again = client.decided("artifact.put", naming(first), key="again")["result"]
        assert len({one["artifact_id"], other["artifact_id"], again["artifact_id"]}) == 3
        digest = digest_of(5, 9 * MIB)
        assert bucket.keys(stack, tenant, "blobs/") == [f"blobs/b3/{digest[:2]}/{digest}"]
        left = {f"uploads/{first}.declaration", f"uploads/{second}.declaration", f"uploads/{second}.content"}
        until(lambda: set(bucket.keys(stack, tenant, "uploads/")) <= left, "the removal of what became a blob")


def test_other_bytes_than_declared_are_refused_and_the_tenant_goes_on(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        upload_id = sent(client, 6, 9 * MIB, other=7)
        error = client.refused("INVALID_REQUEST", "artifact.put", naming(upload_id))
        assert error["details"] == {"upload_id": upload_id, "reason": "digest_mismatch"}
        assert client.last_commit_seq() == 0
        assert bucket.keys(stack, tenant, "blobs/") == []
        unsent = declared(client, 8, 9 * MIB)["upload_id"]
        assert client.refused("INVALID_REQUEST", "artifact.put", naming(unsent))["details"]["reason"] == "not_sent"
        assert client.claim("said after")["commit_seq"] == 1


def test_small_and_searchable_uploads_are_as_any_other_artifact(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        for size in (1000, 100_000):
            body = f"needle{size} ".encode() + b"hay " * (size // 4)
            declaration = {"size_bytes": len(body), "blob_hash": blake3(body).hexdigest()}
            ticket = client.http.post(UPLOADS, json=declaration).json()
            assert httpx.put(ticket["url"], content=body, headers=ticket["headers"], trust_env=False).is_success
            record = client.ok("artifact.put", naming(ticket["upload_id"], media_type="text/plain"))
            hits = client.ok("search", {"query": f"needle{size}"})["hits"]
            assert [hit["entity_id"] for hit in hits] == [record["artifact_id"]]
            shown = client.ok("artifact.get", {"artifact_id": record["artifact_id"]})
            assert shown["content"]["data"].encode() == body
            assert client.http.get(content_path(record)).content == body


def test_a_repeat_is_answered_when_its_upload_is_gone(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        upload_id = sent(client, 9, 9 * MIB)
        first = client.decided("artifact.put", naming(upload_id), key="k")["result"]
        bucket.delete(stack, tenant, f"uploads/{upload_id}.declaration")
        for _ in range(4):  # by either api process
            again = client.ok("artifact.put", naming(upload_id), key="k")
            assert again == first | {"created": False}
        client.refused("NOT_FOUND", "artifact.put", naming(upload_id), key="another")


@pytest.mark.fault_class(24)
def test_uploads_and_contents_of_another_tenant_look_like_none(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client, stack.client("tenant-0") as stranger:
        upload_id = sent(client, 10, 9 * MIB)
        stranger.refused("NOT_FOUND", "artifact.put", naming(upload_id))
        path = f"{UPLOADS}/{upload_id}/content"
        answer = stranger.http.put(path, content=blocks(10, 9 * MIB), headers={"Content-Length": str(9 * MIB)})
        assert answer.status_code == 404
        record = client.decided("artifact.put", naming(upload_id), key="k")["result"]
        assert stranger.http.get(content_path(record)).status_code == 404
        assert client.http.head(content_path(record)).status_code == 200


@pytest.mark.fault_class(57)
def test_a_long_verification_holds_up_nothing_else_and_can_be_asked_about(stack: Deployment, tenant: str) -> None:
    """In the tenant's own line it would: no later message of a group is delivered before an earlier one is done."""
    with stack.client(tenant) as client:
        upload_id = sent(client, 11, LARGE)
        client.claim("the tenant's lease is held")
        with stack.stopped_writer():
            artifact = client.post("artifact.put", naming(upload_id), key="a", headers={"Prefer": "respond-async"})
            assert artifact.status_code == 202
            asked = client.post("claim.assert", claim("sent after it"), key="c", headers={"Prefer": "respond-async"})
            assert asked.status_code == 202
        url = artifact.json()["error"]["details"]["operation_url"]
        written = client.decided("claim.assert", claim("sent after it"), key="c")
        status = until(lambda: _applied(client, url), "the artifact's commit")
        assert written["commit_seq"] < status["commit_seq"]
        assert status["result"]["blob_hash"] == digest_of(11, LARGE)


def _applied(client: Client, operation_url: str) -> Json | None:
    status: Json = client.http.get(operation_url).json()
    assert status["state"] in ("pending", "applied"), status
    return status if status["state"] == "applied" else None


def test_a_range_of_what_is_large_costs_no_more_than_the_range(stack: Deployment, tenant: str) -> None:
    with stack.client(tenant) as client:
        record = client.decided("artifact.put", naming(sent(client, 12, LARGE)), key="k")["result"]
        piece = block(12)
        began = time.monotonic()
        for start, stop in ((0, 10), (LARGE - 5, LARGE), (3 * MIB - 2, 3 * MIB + 2)):
            answer = client.http.get(content_path(record), headers={"Range": f"bytes={start}-{stop - 1}"})
            assert answer.status_code == 206
            assert answer.content == bytes(piece[position % MIB] for position in range(start, stop))
        assert time.monotonic() - began < 2.0
