"""From a message to the command it asks for, and to what became of that.

The idempotency key of a command derives from what the message is about, so that a message that comes twice is one
command: a queue delivers at least once, and a worker may die between a commit and its acknowledgement.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import apsw
import orjson
from blake3 import blake3

from memoree import limits
from memoree.database import idempotency, sources
from memoree.database.sources import Source
from memoree.envelope import Envelope
from memoree.errors import Code, MemoreeError, not_found, shown
from memoree.ids import AttemptId, UploadId, new_ulid
from memoree.ingest.message import Checkpoint, Ingest, IngestMessage, Register, UploadReference, Withdraw
from memoree.ingest.site import IngestSite
from memoree.operations.call import validate
from memoree.operations.source_items import STORED_PROVENANCE_MEMBER
from memoree.owner import Owner
from memoree.service import OperationStatus, Reply, Request

PENDING_LOOK_SECONDS_MIN, PENDING_LOOK_SECONDS_MAX = 0.5, 10.0
"""Between two questions what became of a command that the writer has not decided."""
REPLY_SECONDS_MAX = 2.0
"""How long a command is waited for before its turn goes to others: a writer that lives decides far sooner."""

TENANT_KNOWN_SECONDS = 60.0
"""For how long a tenant counts as known once it was found to be: it may be deleted while nobody looks."""

SourceKey = tuple[str, Owner, str]
Waiting = Callable[[], Awaitable[None]]
"""Told when all that is left is to wait for the writer: nothing that happens to this process is the message's fault
then, and others may have its turn."""


log = logging.getLogger(__name__)


class Outage(Exception):
    """Something that is not the message's fault keeps it from being decided: it can be submitted again."""


@dataclass(frozen=True, slots=True)
class _Command:
    operation: str
    input: dict[str, Any]
    key: str


class Submitter:
    """Submits messages; remembers which source has which name."""

    def __init__(self, site: IngestSite) -> None:
        self._site = site
        self._source_ids: OrderedDict[SourceKey, str] = OrderedDict()
        self._known_until: dict[str, float] = {}
        """By tenant, on the monotonic clock."""
        self._sending: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By tenant. Making commands ready is work of this process: its writer is to have some before all are."""

    async def submit(self, message: IngestMessage, waiting: Waiting) -> None:
        """Returns once head covers what the message asks for. Raises `Outage`, what an outage raises, and the refusal
        it met."""
        await self._require_tenant(message.tenant)
        if isinstance(message, Register):
            return await self._register(message, waiting)
        key = _source_key(message)
        remembered = key in self._source_ids
        try:
            await self._say(message, await self._source_id(message), waiting)
        except MemoreeError as error:
            if error.code is not Code.NOT_FOUND or not remembered:
                raise
            # A restore may have taken the source away, and a later registration given its name another id.
            del self._source_ids[key]
            await self._say(message, await self._source_id(message), waiting)

    async def submit_many(
        self, messages: Sequence[Ingest | Withdraw], applied: Callable[[int], None]
    ) -> dict[int, AttemptId]:
        """Tells of each of these messages, by its position, once it is applied and covered by head. Returns those that
        are in the writer's queue; what is with the others, `submit` tells. They are of one source and about different
        items, and name no uploads. Raises as `submit` what concerns all of them."""
        tenant = messages[0].tenant
        await self._require_tenant(tenant)
        source_id = await self._source_id(messages[0])
        numbers: list[int] = []
        pending: dict[int, AttemptId] = {}

        def replied(position: int, reply: Reply) -> None:
            if reply.envelope["ok"]:
                applied(numbers[position])
            elif (attempt_id := _pending(reply)) is not None:
                pending[numbers[position]] = attempt_id

        async with AsyncExitStack() as turn:
            await turn.enter_async_context(self._sending.setdefault(tenant, asyncio.Lock()))
            requests: list[Request] = []
            for number, message in enumerate(messages):
                with suppress(MemoreeError):
                    requests.append(_request(message, _command(message, source_id)))
                    numbers.append(number)
            await self._site.write_many(tenant, requests, replied, turn.aclose)
        return pending

    async def is_applied(self, tenant: str, attempt_id: AttemptId) -> bool:
        """Once a command that is in the writer's queue is decided, or nobody can say any more."""
        try:
            await self._decided(tenant, attempt_id)
        except (MemoreeError, Outage):
            return False
        return True

    def doubt(self, tenant: str) -> None:
        """Ask at the next message whether there is such a tenant: it may have been deleted meanwhile."""
        self._known_until.pop(tenant, None)

    async def superseded(self, message: IngestMessage) -> bool:
        """Whether the store knows a later state of the item: then a delivery that comes late would undo it."""
        if not isinstance(message, Ingest | Withdraw):
            return False

        def look(db: apsw.Connection) -> bool:
            source_id = sources.named(db, _owner(message), message.source.name)
            source = sources.find(db, source_id) if source_id is not None else None
            item = sources.find_item(db, source, message.external_id) if source is not None else None
            return item is not None and max(item.observed_at, item.withdrawn_at or "") > message.observed_at

        found, _ = await self._site.tenancy(message.tenant).snapshot(look)
        return found

    async def _require_tenant(self, tenant: str) -> None:
        now = time.monotonic()
        if now >= self._known_until.get(tenant, 0.0):
            if not await self._site.knows(tenant):
                not_found("tenant", tenant)
            self._known_until[tenant] = now + TENANT_KNOWN_SECONDS

    # --- sources --------------------------------------------------------------------------------------------------

    async def _register(self, message: Register, waiting: Waiting) -> None:
        source = await self._look_up(message)
        if source is None:
            try:
                await self._call(message, _registration(message), waiting)
            except MemoreeError as error:
                # By hand meanwhile, perhaps: then the name says whether it is the same source.
                if error.code is not Code.INVALID_REQUEST or (source := await self._look_up(message)) is None:
                    raise
            else:
                return
        metadata = orjson.loads(source.metadata)
        if (source.kind, source.locator, metadata) != (message.source.system, message.locator, message.metadata):
            raise MemoreeError(
                Code.REVISION_CONFLICT,
                f"source {shown(source.name)} is registered with another system, locator or metadata, which stay; "
                "choose another name for another source",
                details={"entity_type": "source", "entity_id": source.source_id},
            )

    async def _source_id(self, message: IngestMessage) -> str:
        """Raises `NOT_FOUND` for a source that is not registered, `REVISION_CONFLICT` for one of another system."""
        key = _source_key(message)
        if (known := self._source_ids.get(key)) is not None:
            self._source_ids.move_to_end(key)
            return known
        source = await self._look_up(message)
        if source is None:
            raise MemoreeError(
                Code.NOT_FOUND,
                f"source {shown(message.source.name)} is not registered in this workspace, project and task; "
                "a `register` message comes first",
            )
        if source.kind != message.source.system:
            raise MemoreeError(
                Code.REVISION_CONFLICT,
                f"source {shown(source.name)} is of system {shown(source.kind)}, not {shown(message.source.system)}",
                details={"entity_type": "source", "entity_id": source.source_id},
            )
        self._source_ids[key] = source.source_id
        if len(self._source_ids) > limits.SOURCES_REMEMBERED_MAX:
            self._source_ids.popitem(last=False)
        return source.source_id

    async def _look_up(self, message: IngestMessage) -> Source | None:
        def look(db: apsw.Connection) -> Source | None:
            source_id = sources.named(db, _owner(message), message.source.name)
            return sources.find(db, source_id) if source_id is not None else None

        source, _ = await self._site.tenancy(message.tenant).snapshot(look)
        return source

    # --- commands -------------------------------------------------------------------------------------------------

    async def _say(self, message: Ingest | Checkpoint | Withdraw, source_id: str, waiting: Waiting) -> None:
        if isinstance(message, Ingest) and isinstance(message.content, UploadReference):
            await self._check_reference(message.tenant, message.content)
        command = _command(message, source_id)
        try:
            await self._call(message, command, waiting)
        except MemoreeError as error:
            if error.code is not Code.IDEMPOTENCY_CONFLICT or not isinstance(message, Ingest):
                raise
            if not await self._delivered_before(message, command):
                raise _other_bytes(message) from None

    async def _check_reference(self, tenant: str, reference: UploadReference) -> None:
        try:
            upload = await self._site.service.uploads.find(tenant, UploadId(reference.upload_id))
        except MemoreeError:
            return  # expired: whether this is a repeat, which does not need it, is judged with the command
        if (upload.digest.hex(), upload.size) != (reference.blob_hash, reference.size_bytes):
            raise MemoreeError(
                Code.INVALID_REQUEST,
                f"content: upload {reference.upload_id} was declared with another size or BLAKE3 than the message says",
            )

    async def _delivered_before(self, message: Ingest, command: _Command) -> bool:
        """Whether the delivery that has the key was this one, though it was written otherwise: a connector that starts
        over uploads large content again, under another upload id."""
        namespaced = _request(message, command).call.idempotency_namespaced

        def look(db: apsw.Connection) -> Mapping[str, Any] | None:
            record = idempotency.find(db, namespaced)
            return orjson.loads(record.result) if record is not None else None

        earlier, _ = await self._site.tenancy(message.tenant).snapshot(look)
        if earlier is None or "artifact" not in earlier:
            return False
        artifact = earlier["artifact"]
        content = message.content
        digest = content.blob_hash if isinstance(content, UploadReference) else blake3(content.decoded()).hexdigest()
        provenance = {name: each for name, each in artifact["provenance"].items() if name != STORED_PROVENANCE_MEMBER}
        stored = (artifact["kind"], artifact["title"], artifact["media_type"], artifact["blob_hash"], provenance)
        return stored == (message.kind, message.title, message.media_type, digest, message.provenance)

    async def _call(self, message: IngestMessage, command: _Command, waiting: Waiting) -> None:
        """Raises `Outage`, and the refusal."""
        request = _request(message, command)
        reply = await self._site.service.call(message.tenant, request, wait_seconds=REPLY_SECONDS_MAX)
        if reply.envelope["ok"]:
            return
        if (attempt_id := _pending(reply)) is not None:
            await waiting()
            await self._decided(message.tenant, attempt_id)
            return
        error = MemoreeError.from_wire(reply.envelope["error"])
        if error.retryable:
            raise Outage(error.message)
        raise error

    async def _decided(self, tenant: str, attempt_id: AttemptId) -> None:
        """Wait for what is in the writer's queue already: sending it again would only make that longer."""
        pause = PENDING_LOOK_SECONDS_MIN
        while (status := await self._status(tenant, attempt_id)).state == "pending":
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads load, guards nothing
            pause = min(2 * pause, PENDING_LOOK_SECONDS_MAX)
        if status.state == "applied":
            return
        if status.error is not None and not (error := MemoreeError.from_wire(status.error)).retryable:
            raise error
        raise Outage(f"the command was not applied: its state is {status.state}")

    async def _status(self, tenant: str, attempt_id: AttemptId) -> OperationStatus:
        """Pending, too, while the store does not tell: that changes nothing for what is in the writer's queue."""
        try:
            return await self._site.service.operation_status(tenant, attempt_id)
        except MemoreeError as error:
            if not error.retryable:
                raise
            log.warning("tenant %s: what became of attempt %s is not known: %s", tenant, attempt_id, error)
            return OperationStatus("pending")


def _owner(message: IngestMessage) -> Owner:
    context = message.context
    return Owner(context.workspace_id, context.project_id, context.task_id, None)


def _source_key(message: IngestMessage) -> SourceKey:
    return message.tenant, _owner(message), message.source.name


def _request(message: IngestMessage, command: _Command) -> Request:
    """Raises the refusal of a command that is wrong in itself."""
    envelope = Envelope(
        request_id=f"req_{new_ulid()}",
        op=command.operation,
        idempotency_key=command.key,
        context=message.context.model_dump(exclude_none=True),
        context_source="explicit",
        input=command.input,
    )
    return Request(envelope, validate(envelope))


def _pending(reply: Reply) -> AttemptId | None:
    """The attempt that is in the writer's queue, undecided."""
    if reply.envelope["ok"] or reply.envelope["error"]["code"] != Code.WRITE_PENDING:
        return None
    return AttemptId(reply.envelope["error"]["details"]["attempt_id"])


def _registration(message: Register) -> _Command:
    input = {
        "name": message.source.name,
        "kind": message.source.system,
        "locator": message.locator,
        "metadata": message.metadata,
        "actor": message.actor,
    }
    return _Command("source.register", input, _key(message, orjson.dumps(input, option=orjson.OPT_SORT_KEYS).decode()))


def _command(message: Ingest | Checkpoint | Withdraw, source_id: str) -> _Command:
    common = {"source_id": source_id, "observed_at": message.observed_at, "actor": message.actor}
    if isinstance(message, Ingest):
        content = message.content.model_dump(include={"type", "data", "upload_id"})
        input = {
            **common,
            "external_id": message.external_id,
            "external_revision": message.external_revision,
            "kind": message.kind,
            "title": message.title,
            "media_type": message.media_type,
            "content": content,
            "provenance": message.provenance,
        }
        key = _key(message, message.external_id, message.external_revision, message.observed_at)
        return _Command("source.ingest", input, key)
    if isinstance(message, Withdraw):
        input = {**common, "external_id": message.external_id, "reason": message.reason}
        return _Command("source.withdraw", input, _key(message, message.external_id, message.observed_at))
    input = {**common, "health": message.health, "cursor": message.cursor, "message": message.message}
    said = (message.health, message.cursor, message.message, message.actor)
    return _Command("source.checkpoint", input, _key(message, message.observed_at, orjson.dumps(said).decode()))


def _key(message: IngestMessage, *names: str) -> str:
    """The same for every delivery of one message, apart from those of people: keys of a context share a name space."""
    digest = blake3(orjson.dumps((message.type, message.source.name, *names))).hexdigest()
    return f"memoree-ingest/{message.type}/{digest}"


def _other_bytes(message: Ingest) -> MemoreeError:
    return MemoreeError(
        Code.REVISION_CONFLICT,
        f"revision {shown(message.external_revision)} of item {shown(message.external_id)}, observed at the same "
        "instant, was delivered with another content, title, kind, media type or provenance; deliver what changed "
        "under a new external revision",
        details={"entity_type": "source_item", "requested_revision": message.external_revision},
    )
