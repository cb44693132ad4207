"""What an operation sees: a `View` of one consistent state, or the writer's `Transaction`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import apsw
import orjson
from pydantic import BaseModel

from memoree import clock, ids
from memoree.database import condemned, events, integrity
from memoree.database.meta import Meta
from memoree.database.quota import NONE, Quota
from memoree.errors import Code, MemoreeError

if TYPE_CHECKING:
    from memoree.objects.audit import BlobAudit


class BlobReader(Protocol):
    """Verified reads from the content-addressed store."""

    def read(self, digest: bytes, size: int) -> bytes:
        """The blob's bytes. Raises `INTEGRITY_ERROR` when it is missing or is not what its name says."""


class BlobPresence(Protocol):
    """What a writer asks before a revision may depend on a blob."""

    def holds(self, digest: bytes) -> bool: ...


@dataclass(frozen=True, slots=True)
class MadeBackup:
    """Where a backup is, its database and its blobs: paths of this host, or URLs."""

    destination: str
    database: str
    blobs: str
    commit_seq: int
    copied_blobs: int


class Upkeep(Protocol):
    """What the administrative operations need of the process that answers, beside the database."""

    def blob_audit(self) -> BlobAudit:
        """The blobs of the tenant, to be proved one by one."""

    def back_up(self, destination: str, *, commit_seq_min: int) -> MadeBackup:
        """Copy the newest commit, which is no older than that, and its blobs: a store in a directory of this host to
        the new directory of that path, one in a bucket to its place there. Raises what
        `memoree.backup.directory.back_up` or `memoree.jobs.backup.create` raises, and `CONFIG_ERROR` for a destination
        of the other kind."""


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """What `capabilities` and `doctor` report about the process that answers."""

    blob_store: str
    connections_max: int
    authorization: bool
    pid: int
    running: bool
    lifecycle_owner: str


@dataclass(slots=True)
class View:
    """One consistent state of a tenant's database, and the one instant at which the request is judged."""

    db: apsw.Connection
    blobs: BlobReader
    facts: ServiceFacts
    meta: Meta
    now: str
    """The evaluation instant, in stored form."""
    upkeep: Upkeep | None = field(default=None, kw_only=True)
    """Of a service that answers requests; a writer, which only changes rows, has none."""

    def require_commit_seq(self, wanted: int | None) -> None:
        """Raises `INDEX_NOT_READY` when the caller has seen a newer state than this one (§1.8)."""
        if wanted is not None and wanted > self.meta.commit_seq:
            raise index_not_ready(wanted, self.meta.commit_seq)


def index_not_ready(wanted: int, current: int) -> MemoreeError:
    return MemoreeError(
        Code.INDEX_NOT_READY,
        f"commit {wanted} is not visible yet; the newest visible commit is {current}",
        details={"requested_commit_seq": wanted, "current_commit_seq": current},
        retry_after_seconds=1.0,
    )


def _blob_refusal(reason: str, message: str, retry_after_seconds: float) -> MemoreeError:
    details = {"reason": reason, "retry_after_seconds": retry_after_seconds}
    return MemoreeError(Code.TRANSPORT_ERROR, message, details=details, retry_after_seconds=retry_after_seconds)


@dataclass(frozen=True, slots=True)
class Applied:
    """What a mutation did: its record and the commit it belongs to, an earlier one when nothing changed."""

    record: BaseModel
    commit_seq: int
    created: bool = True

    def to_result(self) -> dict[str, Any]:
        """The acknowledgement (§4.0.5): the record, flattened, and these two members."""
        return {
            **self.record.model_dump(exclude_none=True),
            "commit_seq": self.commit_seq,
            "created": self.created,
        }


@dataclass(slots=True)
class Transaction(View):
    """The writer's view inside one command: it may change rows and takes one commit number, or several in a row."""

    presence: BlobPresence
    sum: integrity.Sum
    quota_default: Quota = field(default=NONE, kw_only=True)
    """Where the tenant has none of its own."""
    allowed: Quota = field(default=NONE, kw_only=True)
    """What the tenant may hold, whichever says so."""
    first_commit: int | None = field(default=None, kw_only=True)
    """The first number that it has taken."""

    @property
    def commit_seq(self) -> int:
        """The number this mutation will take, for the rows it writes."""
        return self.meta.commit_seq + 1

    def require_blob(self, digest: bytes) -> None:
        """Raises a retryable `TRANSPORT_ERROR` unless the blob is there and not about to be collected."""
        if (row := condemned.find(self.db, digest)) is not None:
            raise _blob_refusal(
                "digest_condemned",
                "the content is being collected; when that is over it can be stored again",
                condemned.seconds_to_release(row, self.now),
            )
        if not self.presence.holds(digest):
            raise _blob_refusal("blob_missing", "the content did not reach the store; send it again", 1.0)

    def new_id(self, prefix: str) -> str:
        return ids.new_id(prefix, clock.hlc_milliseconds(self.meta.hlc))

    def record_event(
        self,
        operation: str,
        entity_type: str,
        entity_id: str,
        *,
        revision_id: str | None = None,
        actor: str | None = None,
        payload: Mapping[str, Any] | None = None,
        also: Sequence[events.Change] = (),
    ) -> int:
        """Consume the commit number: exactly one audit event per state-changing mutation (§1.8). A command that makes
        several of these takes a number for each; its idempotency record names the last, and every event but its first
        says where it `began`.

        An artifact's or claim's event has its new `status` in the payload; `also` are the other ones it changed.
        """
        told: dict[str, Any] = {**(payload or {})}
        if also:
            told["also"] = [*map(list, also)]
        self.meta.commit_seq += 1
        if self.first_commit is None:
            self.first_commit = self.meta.commit_seq
        else:
            told[events.BEGAN] = self.first_commit
        self.meta.hlc = clock.next_hlc(self.meta.hlc, 0)
        event = events.Event(
            commit_seq=self.meta.commit_seq,
            event_id=self.new_id("evt"),
            hlc=self.meta.hlc,
            operation=operation,
            entity_type=entity_type,
            entity_id=entity_id,
            revision_id=revision_id,
            actor=actor,
            payload=orjson.dumps(told).decode(),
            created_at=self.now,
        )
        events.insert(self.db, event)
        self.sum.add(events.entry(event))
        return self.meta.commit_seq
