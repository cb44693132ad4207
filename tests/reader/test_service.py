"""The replicated service over a real SeaweedFS, with a writer and its real Litestream in the same process."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from memoree import ids, limits
from memoree.assembly import replicated_service, writer_worker
from memoree.errors import Code, MemoreeError
from memoree.objects import StoreUnavailable
from memoree.objects.s3 import S3Settings, S3Store
from memoree.reader.service import ReplicatedService
from memoree.service import Reply
from memoree.settings import StackSettings
from memoree.writer.staging import ClaimCheck

from .recorded import request

pytestmark = pytest.mark.stack


class Site:
    def __init__(self, s3: S3Settings, directory: Path, service: ReplicatedService, settings: StackSettings) -> None:
        self.service = service
        self.settings = settings
        self.tenant = f"t-{uuid.uuid4().hex[:12]}"

    async def call(self, op: str, input: dict[str, Any], *, key: str | None = None, **how: Any) -> Reply:
        return await self.service.call(self.tenant, request(op, input, key=key), **how)

    async def write(self, statement: str, **how: Any) -> Reply:
        return await self.call("claim.assert", {"claim_type": "fact", "statement": statement}, **how)


@asynccontextmanager
async def opened(s3: S3Settings, directory: Path) -> AsyncIterator[Site]:
    settings = StackSettings(
        bucket=s3.bucket,
        endpoint_url=s3.endpoint_url,
        access_key_id=s3.access_key_id,
        secret_access_key=s3.secret_access_key,
        queue_url=f"sqlite://{directory / 'queue.sqlite3'}",
        runtime_dir=directory / "runtime",
    )
    async with replicated_service(settings, authorization=False) as service:
        yield Site(s3, directory, service, settings)


@asynccontextmanager
async def writing(site: Site) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with writer_worker(site.settings, supervised=True) as worker:
        running = asyncio.create_task(worker.run(stop))
        try:
            yield
        finally:
            stop.set()
            await running


def run(s3: S3Settings, directory: Path, body: Callable[[Site], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(s3, directory) as site:
            await body(site)

    asyncio.run(main())


def test_a_write_is_answered_from_the_replica_that_then_serves_it(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        async with writing(site):
            written = await site.write("cone 6")
            assert (written.status, written.envelope["commit_seq"], written.snapshot_commit_seq) == (200, 1, 1)
            found = await site.call("claim.get", {"claim_id": written.envelope["result"]["claim_id"]})
            assert found.envelope["result"]["statement"] == "cone 6"

            again = await site.write("cone 6", key="k")
            replayed = await site.write("cone 6", key="k")
            assert replayed.envelope["commit_seq"] == again.envelope["commit_seq"]
            assert replayed.envelope["result"] == again.envelope["result"] | {"created": False}
            conflict = await site.write("cone 7", key="k")
            assert conflict.envelope["error"]["code"] == "IDEMPOTENCY_CONFLICT"

            ahead = await site.call("search", {"query": "cone", "min_commit_seq": 99})
            assert (ahead.status, ahead.envelope["error"]["code"]) == (503, "INDEX_NOT_READY")

    run(seaweedfs, tmp_path, body)


def test_content_of_every_size_comes_back_as_it_was(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        async with writing(site):
            for size in (0, limits.INLINE_BODY_BYTES_MAX + 1, limits.COMMAND_TEXT_BYTES_MAX + 1, 300_000):
                data = b"kiln " * (size // 5)
                content = {"type": "base64", "data": base64.b64encode(data).decode()}
                statement = {"kind": "note", "title": "t", "content": content}
                written = await site.call("artifact.put", statement)
                assert written.status == 200, written.envelope
                found = await site.call("artifact.get", {"artifact_id": written.envelope["result"]["artifact_id"]})
                content = found.envelope["result"]["content"]
                stored = content["data"].encode() if content["type"] == "text" else base64.b64decode(content["data"])
                assert stored == data

    run(seaweedfs, tmp_path, body)


def test_a_large_command_is_parked_and_its_parking_place_cleared(
    seaweedfs: S3Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parked: list[str] = []
    to_message = ClaimCheck.to_message
    monkeypatch.setattr(ClaimCheck, "to_message", lambda check: parked.append(check.attempt_id) or to_message(check))

    async def body(site: Site) -> None:
        async with writing(site):
            written = await site.write('"' * limits.STATEMENT_BYTES_MAX)
            assert written.status == 200, written.envelope
        assert len(parked) == 1
        async with S3Store(seaweedfs) as store:
            assert [info.key async for info in store.list(f"tenants/{site.tenant}/commands/")] == []

    run(seaweedfs, tmp_path, body)


@pytest.mark.fault_class(1)
def test_without_a_writer_a_write_is_openly_pending_and_applied_once_there_is_one(
    seaweedfs: S3Settings, tmp_path: Path
) -> None:
    async def body(site: Site) -> None:
        pending = await site.write("patient", key="k", wait_seconds=0.05)
        error = pending.envelope["error"]
        assert (pending.status, error["code"], error["retryable"]) == (202, "WRITE_PENDING", True)
        attempt_id = error["details"]["attempt_id"]
        assert (await site.service.operation_status(site.tenant, attempt_id)).state == "pending"

        async with writing(site):
            retried = await site.write("patient", key="k")
            assert retried.status == 200
            status = await site.service.operation_status(site.tenant, attempt_id)
            assert (status.state, status.commit_seq) == ("applied", 1)
        assert (await site.service.operation_status("another", attempt_id)).state == "pending"
        old = ids.AttemptId(ids.new_id("att", 0))
        assert (await site.service.operation_status(site.tenant, old)).state == "unknown"

    run(seaweedfs, tmp_path, body)


def test_a_store_that_is_away_makes_outcomes_unknown_and_never_failed(
    seaweedfs: S3Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(site: Site) -> None:
        async def away(*_: object, **__: object) -> None:
            raise StoreUnavailable("scripted")

        monkeypatch.setattr(S3Store, "get", away)
        written = await site.write("s")
        assert (written.status, written.envelope["error"]["code"]) == (503, "TRANSPORT_ERROR")
        with pytest.raises(MemoreeError) as refused:
            await site.service.operation_status(site.tenant, ids.new_attempt_id())
        assert refused.value.code is Code.TRANSPORT_ERROR
        store = next(check for check in await site.service.readiness() if check.name == "store")
        assert not store.ok

    run(seaweedfs, tmp_path, body)


@pytest.mark.fault_class(25)
def test_tenants_never_see_each_other_in_one_warm_process(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        async with writing(site):
            first = (await site.write("of the first")).envelope["result"]["claim_id"]
            site.tenant += "1"
            second = (await site.write("of the second")).envelope["result"]["claim_id"]
            assert (await site.call("claim.get", {"claim_id": first})).status == 404
            site.tenant = site.tenant[:-1]
            assert (await site.call("claim.get", {"claim_id": second})).status == 404
            assert (await site.call("claim.get", {"claim_id": first})).status == 200

    run(seaweedfs, tmp_path, body)


def test_an_exact_replay_is_looked_up_in_what_head_says_now(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        async with writing(site):
            await site.write("s", key="k")
            async with site.service._replicas.ready(site.tenant, strong=False) as replica:
                looked = replica.checked_at
            await site.write("s", key="k")
            assert replica.checked_at > looked

    run(seaweedfs, tmp_path, body)


def test_concurrent_clients_are_all_answered_with_their_own_write(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        async with writing(site):
            replies = await asyncio.gather(*(site.write(f"s{number}") for number in range(100)))
            numbers = [reply.envelope["commit_seq"] for reply in replies]
            assert sorted(numbers) == list(range(1, 101))
            strong = await site.call("search", {"query": "s7"}, strong=True)
            assert strong.snapshot_commit_seq == 100

    run(seaweedfs, tmp_path, body)


def test_closing_leaves_no_file_behind(seaweedfs: S3Settings, tmp_path: Path) -> None:
    async def body(site: Site) -> None:
        async with writing(site):
            await site.write("s")

    run(seaweedfs, tmp_path, body)

    assert list((tmp_path / "runtime" / "replicas").iterdir()) == []
    assert list((tmp_path / "runtime" / "epochs").iterdir()) == []
