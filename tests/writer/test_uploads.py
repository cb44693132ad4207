"""From an upload to a blob: real files, a real queue, and every way in which an upload can be at fault."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from memoree import ids, limits
from memoree.clock import utc_now
from memoree.command import ClaimCheck, Command, to_message
from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectMissing, ObjectRange, StoreUnavailable
from memoree.objects.blobs import blob_key
from memoree.objects.filesystem import FilesystemStore
from memoree.objects.s3 import S3Settings, S3Store
from memoree.operations.call import decode, validate
from memoree.operations.content import StagedContent
from memoree.queue import Message, OutgoingMessage
from memoree.queue.sqlite import SqliteQueue
from memoree.replication import layout
from memoree.uploads import UploadDeclaration, Uploads, group_of
from memoree.writer.staging import Staged, stage
from memoree.writer.uploads import UploadVerifier, sweep_all
from operations.bench import Bench as Database
from operations.bench import put_input
from stack_support import unique_prefix

TENANT = "t"
CONTEXT = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
NOW = datetime(2026, 3, 2, 20, 41, 7, tzinfo=UTC)
BODY = b"cone 6 reached at 21:40\n" * 5000
VISIBILITY_SECONDS = 30.0


class Store(FilesystemStore):
    """A real directory, with something that happens at every range read."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def get_range(self, key: str, start: int, stop: int, *, if_match: str | None = None) -> ObjectRange:
        found = await super().get_range(key, start, stop, if_match=if_match)
        if self.meanwhile is not None:
            await self.meanwhile()
        return found


class Bench:
    """A store, a queue and a verifier; one tenant and its uploads."""

    def __init__(self, directory: Path) -> None:
        self.store = Store(directory / "objects")
        self.now = NOW
        self.uploads = Uploads(self.store, lambda: self.now, through_service=True)
        self.queue = SqliteQueue(directory / "queue.sqlite3")
        self.verifier = UploadVerifier(self.store, self.uploads, self.queue)

    async def upload(self, sent: bytes | None = BODY, *, declared: bytes = BODY, size: int | None = None) -> str:
        """A declared upload, and its bytes where there are any."""
        wanted = UploadDeclaration(size_bytes=size or len(declared), blob_hash=blake3(declared).hexdigest())
        upload_id = (await self.uploads.declare(TENANT, wanted)).upload_id
        if sent is not None:
            await self.store.put(layout.upload_content_key(TENANT, upload_id), sent)
        return upload_id

    async def send(self, upload_id: str, *, parked: bool = False, size: int | None = None) -> Command:
        """A put that names the upload, on its way as an api sends it."""
        made, body = command(upload_id, size=size)
        message = body.decode()
        if parked:
            await self.store.put(layout.parked_command_key(TENANT, made.attempt_id), body)
            message = ClaimCheck(made.attempt_id, TENANT, blake3(body).digest()).to_message()
        group = group_of(ids.UploadId(upload_id))
        await self.queue.send(OutgoingMessage(message, group=group, dedup_id=made.attempt_id))
        return made

    async def received(self) -> list[Message]:
        return await self.queue.receive(max_messages=10, wait_seconds=0.0, visibility_seconds=VISIBILITY_SECONDS)

    async def verify(self) -> None:
        for message in await self.received():
            await self.verifier.serve(message)

    async def arrived(self) -> Staged:
        """What reached the tenant's writer, as it sees it before the transaction."""
        messages = await self.received()
        assert {message.group for message in messages} == {TENANT}
        staged = await stage(self.store, TENANT, messages)
        await self.queue.ack(messages)
        return staged

    async def verified(self, upload_id: str, **how: Any) -> StagedContent:
        """The content of a put that named the upload, once it went all the way."""
        await self.send(upload_id, **how)
        await self.verify()
        (arrived,) = (await self.arrived()).commands
        assert arrived.call.content is not None
        return arrived.call.content

    async def keys(self, prefix: str) -> list[str]:
        return [info.key async for info in self.store.list(prefix)]

    async def blobs(self) -> list[str]:
        return await self.keys(f"tenants/{TENANT}/blobs/")


def command(upload_id: str, *, size: int | None = None) -> tuple[Command, bytes]:
    body = {
        "request_id": "r",
        "op": "artifact.put",
        "idempotency_key": ids.new_ulid(),
        "context": CONTEXT,
        "input": put_input(content={"type": "upload", "upload_id": upload_id}),
    }
    envelope = decode(json.dumps(body).encode())
    call = validate(envelope)
    assert call.content is None and call.upload_id == upload_id
    content = StagedContent(blake3(BODY).digest(), size or len(BODY), None, call.upload_id)
    made = Command(ids.new_attempt_id(), TENANT, 0, 0, replace(call, content=content))
    return made, to_message(made, envelope)


def run(directory: Path, scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def inside() -> None:
        bench = Bench(directory)
        try:
            await scenario(bench)
        finally:
            await bench.queue.close()

    asyncio.run(inside())


@pytest.mark.parametrize("parked", [False, True])
def test_a_sound_upload_becomes_a_blob_and_its_command_goes_on(tmp_path: Path, parked: bool) -> None:
    async def scenario(bench: Bench) -> None:
        upload_id = await bench.upload()
        sent = await bench.send(upload_id, parked=parked)
        await bench.verify()
        staged = await bench.arrived()
        (arrived,) = staged.commands
        assert (arrived.attempt_id, arrived.call.fingerprint) == (sent.attempt_id, sent.call.fingerprint)
        content = arrived.call.content
        assert content is not None
        assert (content.digest, content.size, content.upload_id) == (blake3(BODY).digest(), len(BODY), upload_id)
        assert content.refusal is None
        assert content.data == BODY, "text is fetched to be indexed"
        assert staged.blobs.holds(content.digest)
        assert await bench.blobs() == [blob_key(TENANT, blake3(BODY).hexdigest())]
        assert await bench.keys(layout.uploads_prefix(TENANT)) == [
            layout.upload_declaration_key(TENANT, ids.UploadId(upload_id))
        ]
        stats = await bench.queue.stats()
        assert (stats.waiting, stats.in_flight) == (0, 0), "the message of the upload is acknowledged"

    run(tmp_path, scenario)


def test_content_that_lives_in_its_row_is_brought_along(tmp_path: Path) -> None:
    small = BODY[: limits.INLINE_BODY_BYTES_MAX]

    async def scenario(bench: Bench) -> None:
        await bench.store.put(blob_key(TENANT, blake3(BODY).hexdigest()), small)
        upload_id = await bench.upload(None, size=len(small))
        _, body = command(upload_id, size=len(small))
        staged = await stage(bench.store, TENANT, [Message("m", body.decode(), TENANT, "r", 1, 0.0)])
        assert [each.call.content.at_hand for each in staged.commands if each.call.content] == [False]

        good = await bench.upload(small, declared=small)
        _, body = command(good, size=len(small))
        body = body.replace(blake3(BODY).hexdigest().encode(), blake3(small).hexdigest().encode())
        await bench.queue.send(OutgoingMessage(body.decode(), group=group_of(ids.UploadId(good)), dedup_id="d"))
        await bench.verify()
        (arrived,) = (await bench.arrived()).commands
        assert arrived.call.content is not None
        assert (arrived.call.content.at_hand, arrived.call.content.data) == (True, small)

    run(tmp_path, scenario)


@pytest.mark.proves("fault-6")
@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (None, "not_sent"),
        (BODY[1:], "size_mismatch"),
        (BODY + b"x", "size_mismatch"),
        (BODY[1:] + b"!", "digest_mismatch"),
    ],
    ids=["not sent", "too short", "too long", "other bytes"],
)
@pytest.mark.parametrize("parked", [False, True])
def test_an_upload_at_fault_goes_on_with_its_refusal_and_becomes_no_blob(
    tmp_path: Path, sent: bytes | None, reason: str, parked: bool
) -> None:
    async def scenario(bench: Bench) -> None:
        upload_id = await bench.upload(sent)
        content = await bench.verified(upload_id, parked=parked)
        assert content.refusal is not None
        assert content.refusal.code is Code.INVALID_REQUEST
        assert content.refusal.details == {"upload_id": upload_id, "reason": reason}
        assert await bench.blobs() == []
        kept = await bench.keys(layout.uploads_prefix(TENANT))
        assert len(kept) == (1 if sent is None else 2), "it may be sent again"

    run(tmp_path, scenario)


def test_bytes_that_are_a_blob_already_are_not_read_again(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.store.put(blob_key(TENANT, blake3(BODY).hexdigest()), BODY)
        upload_id = await bench.upload(None)
        assert (await bench.verified(upload_id)).refusal is None
        lying = await bench.upload(None, size=len(BODY) + 1)
        refusal = (await bench.verified(lying, size=len(BODY) + 1)).refusal
        assert refusal is not None and refusal.details is not None
        assert refusal.details["reason"] == "size_mismatch"

    run(tmp_path, scenario)


@pytest.mark.parametrize("replacement", [BODY[:-1] + b"!", None], ids=["replaced", "removed"])
def test_an_upload_that_changes_while_it_is_read_never_becomes_a_blob(
    tmp_path: Path, replacement: bytes | None
) -> None:
    async def scenario(bench: Bench) -> None:
        upload_id = await bench.upload()
        key = layout.upload_content_key(TENANT, ids.UploadId(upload_id))

        async def change() -> None:
            if replacement is None:
                await bench.store.delete(key)
            else:
                await bench.store.put(key, replacement)

        bench.store.meanwhile = change
        refusal = (await bench.verified(upload_id)).refusal
        assert refusal is not None and refusal.details is not None
        assert refusal.details["reason"] == "replaced"
        assert await bench.blobs() == []

    run(tmp_path, scenario)


def test_a_worker_that_was_faster_with_the_same_upload_is_believed(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        upload_id = await bench.upload()
        other = UploadVerifier(bench.store, bench.uploads, bench.queue)

        async def overtake() -> None:
            bench.store.meanwhile = None
            await bench.send(upload_id)
            (message,) = [each for each in await bench.received() if each.group != TENANT]
            await other.serve(message)

        await bench.send(upload_id)
        (first,) = await bench.received()
        # A later command of the same upload waits in the same group: the rival got it through another one.
        await bench.queue.ack([first])
        bench.store.meanwhile = overtake
        await bench.verifier.serve(first)
        staged = await bench.arrived()
        assert [each.call.content.refusal for each in staged.commands if each.call.content] == [None, None]
        assert len(await bench.blobs()) == 1

    run(tmp_path, scenario)


def test_while_the_store_does_not_answer_nothing_is_decided(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        async def fail() -> None:
            raise StoreUnavailable("scripted: no answer")

        upload_id = await bench.upload()
        await bench.send(upload_id)
        bench.store.meanwhile = fail
        await bench.verify()
        assert (await bench.queue.stats()).in_flight == 1, "given back, and hidden for a moment"
        bench.store.meanwhile = None
        (again,) = await bench.queue.receive(max_messages=1, wait_seconds=5.0, visibility_seconds=VISIBILITY_SECONDS)
        assert again.receive_count == 2
        bench.store.meanwhile = fail
        await bench.verifier.serve(again)
        assert await bench.keys(f"tenants/{TENANT}/tries/") == [], "a try counts only against the upload"
        assert await bench.blobs() == []

    run(tmp_path, scenario)


def test_an_upload_whose_verification_killed_the_writer_three_times_is_refused(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        upload_id = await bench.upload()
        sent = await bench.send(upload_id)
        for number in range(1, limits.POISON_TRIES_MAX + 1):
            await bench.store.put(layout.verification_try_key(TENANT, sent.attempt_id, number), b"")
        (message,) = await bench.received()
        await bench.verifier.serve(replace(message, receive_count=5))
        (arrived,) = (await bench.arrived()).commands
        assert arrived.call.content is not None and arrived.call.content.refusal is not None
        assert arrived.call.content.refusal.code is Code.INTERNAL_ERROR

    run(tmp_path, scenario)


def test_a_cancelled_verification_returns_at_once_and_counts_for_nothing(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        reading = asyncio.Event()

        async def hang() -> None:
            reading.set()
            await asyncio.Event().wait()

        await bench.send(await bench.upload())
        bench.store.meanwhile = hang
        (message,) = await bench.received()
        serving = asyncio.create_task(bench.verifier.serve(replace(message, receive_count=2)))
        await reading.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert await bench.keys(f"tenants/{TENANT}/tries/") == []
        (again,) = await bench.received()
        assert again.receive_count == 2

    run(tmp_path, scenario)


def test_one_tenant_has_one_verification_at_a_time(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        under_way = most = 0

        async def watched() -> None:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1

        bench.store.meanwhile = watched
        for _ in range(4):
            await bench.send(await bench.upload())
        await asyncio.gather(*(bench.verifier.serve(message) for message in await bench.received()))
        assert most == 1
        assert len((await bench.arrived()).commands) == 4

    run(tmp_path, scenario)


def test_a_message_nobody_can_have_sent_is_dropped_and_a_lost_one_is_told(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        group = group_of(ids.new_upload_id(0))
        await bench.queue.send(OutgoingMessage("{}", group=group, dedup_id="1"))
        await bench.verify()
        assert (await bench.queue.stats()).waiting == 0
        sent = await bench.send(await bench.upload(), parked=True)
        await bench.store.delete(layout.parked_command_key(TENANT, sent.attempt_id))
        await bench.verify()
        staged = await bench.arrived()
        assert [attempt_id for attempt_id, _ in staged.refusals] == [sent.attempt_id]

    run(tmp_path, scenario)


def test_a_repeat_is_answered_whatever_became_of_its_upload(tmp_path: Path) -> None:
    """The refusal an upload met is told only to a request that was never applied."""
    refusal = MemoreeError(Code.INVALID_REQUEST, "the upload is gone", details={"reason": "not_sent"})
    with closing(Database(tmp_path)) as database:
        upload = {"type": "upload", "upload_id": ids.new_upload_id(0)}
        call = database.request("artifact.put", put_input(content=upload), key="k")
        content = StagedContent.of(BODY)
        database.blobs.put(BODY)
        sound = replace(call, content=replace(content, data=None))
        refused = replace(call, content=replace(content, data=None, refusal=refusal))
        attempts = [database.commit([each], upload=False)[0] for each in (refused, sound, refused)]
        assert [(each.status, each.replayed) for each in attempts] == [
            ("refused", False),
            ("applied", False),
            ("applied", True),
        ]


def test_the_sweep_removes_what_expired_of_every_tenant_and_nothing_else(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        old = await bench.upload()
        other = await bench.uploads.declare("other", UploadDeclaration(size_bytes=1, blob_hash="0" * 64))
        bench.now += timedelta(seconds=limits.UPLOAD_REMOVAL_SECONDS)
        young = await bench.upload()
        await bench.store.put(f"tenants/{TENANT}/uploads/foreign", b"")
        await bench.store.put(f"tenants/{TENANT}/head.json", b"")
        await sweep_all(bench.store, bench.uploads, bench.now)
        kept = await bench.keys("tenants/")
        assert any(old in key for key in kept), "exactly as old as the limit"
        bench.now += timedelta(milliseconds=1)
        await sweep_all(bench.store, bench.uploads, bench.now)
        kept = await bench.keys("tenants/")
        assert not any(old in key or other.upload_id in key for key in kept)
        assert len([key for key in kept if young in key]) == 2
        assert {f"tenants/{TENANT}/head.json", f"tenants/{TENANT}/uploads/foreign"} <= set(kept)

    run(tmp_path, scenario)


def test_an_upload_of_another_tenant_is_unknown(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        upload_id = ids.UploadId(await bench.upload())
        assert (await bench.uploads.find(TENANT, upload_id)).size == len(BODY)
        with pytest.raises(MemoreeError) as refused:
            await bench.uploads.find("other", upload_id)
        assert refused.value.code is Code.NOT_FOUND
        with pytest.raises(ObjectMissing):
            await bench.store.head(layout.upload_content_key("other", upload_id))

    run(tmp_path, scenario)


@pytest.mark.stack
@pytest.mark.parametrize("through_service", [False, True])
def test_the_store_takes_the_bytes_unless_a_deployment_wants_them_itself(
    seaweedfs: S3Settings, through_service: bool
) -> None:
    async def scenario() -> None:
        async with S3Store(seaweedfs) as store:
            uploads = Uploads(store, utc_now, through_service=through_service)
            tenant = unique_prefix().split("/")[1]
            ticket = await uploads.declare(tenant, UploadDeclaration(size_bytes=7, blob_hash="0" * 64))
            assert ticket.headers == {"Content-Length": "7"}
            own = f"/v1/artifacts/uploads/{ticket.upload_id}/content"
            assert (ticket.url == own) == through_service
            assert (layout.upload_content_key(tenant, ticket.upload_id) in ticket.url) != through_service

    asyncio.run(scenario())
