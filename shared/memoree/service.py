"""What every door (HTTP, shell, MCP) talks to: one request in, one reply out, whatever the profile behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import apsw

from memoree import clock, limits
from memoree.clock import Clock
from memoree.command import Command
from memoree.database import attempts
from memoree.database.quota import Quota
from memoree.envelope import Envelope, failure, success
from memoree.errors import HTTP_STATUS, Code, MemoreeError
from memoree.ids import AttemptId, attempt_time_ms, new_attempt_id
from memoree.operations.call import Call
from memoree.operations.execute import Success, outcome_of

if TYPE_CHECKING:
    from memoree.contents import RevisionContent
    from memoree.erasures import Erasure, ErasureReceipt
    from memoree.tenants import Tenants
    from memoree.uploads import Uploads

CURSOR_KEY = "keys/cursors"
"""Under which a deployment's store keeps what `Service.cursor_key` returns."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that passed validation: the envelope as sent and the call it asks for."""

    envelope: Envelope
    call: Call[Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """The response envelope and what a transport needs beside it.

    `snapshot_commit_seq` is the state the answer was computed from (header `Memoree-Commit-Seq`).
    """

    envelope: Mapping[str, Any]
    status: int = 200
    snapshot_commit_seq: int | None = None
    retry_after_seconds: float | None = None


OperationState = Literal["pending", "applied", "refused", "expired", "unknown"]


@dataclass(frozen=True, slots=True)
class OperationStatus:
    """What is known of an attempt (design §5.1, step 6). `result` or `error` are present once it is decided."""

    state: OperationState
    commit_seq: int | None = None
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    snapshot_commit_seq: int | None = None
    """The state that it was read from."""

    @classmethod
    def of(cls, db: apsw.Connection, attempt_id: AttemptId, *, commit_seq: int, now_ms: int) -> OperationStatus:
        """What the database knows of an attempt, in its state of that commit."""
        attempt = attempts.find(db, attempt_id)
        if attempt is None:
            return cls(undecided_state(attempt_id, now_ms), snapshot_commit_seq=commit_seq)
        try:
            outcome = outcome_of(db, attempt)
        except MemoreeError as refused:
            return cls(attempt.status, error=refused.to_wire(), snapshot_commit_seq=commit_seq)
        return cls("applied", outcome.commit_seq, outcome.result, snapshot_commit_seq=commit_seq)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a readiness report."""

    name: str
    ok: bool
    detail: str = ""
    measures: Mapping[str, float] = field(default_factory=dict)


class Service(Protocol):
    """The store as a door sees it. Methods never raise for a refusal; they reply with it."""

    async def call(
        self,
        tenant: str,
        request: Request,
        *,
        wait_seconds: float = limits.WRITE_WAIT_SECONDS_DEFAULT,
        strong: bool = False,
    ) -> Reply:
        """Run one request. A write still undecided after `wait_seconds` is answered with `WRITE_PENDING`;
        `strong` reads check head first (design §6.2)."""

    async def operation_status(self, tenant: str, attempt_id: AttemptId) -> OperationStatus: ...

    @property
    def uploads(self) -> Uploads:
        """Where large content is declared, and sent if it comes through the service."""

    async def revision_content(
        self, tenant: str, artifact_id: str, revision_id: str, *, strong: bool = False
    ) -> RevisionContent:
        """The bytes of one revision, to be streamed; as global as `artifact.get`. Raises `NOT_FOUND`, `INTEGRITY_ERROR`
        for bytes in the database that are damaged, `TRANSPORT_ERROR`."""

    async def record_erasure(self, tenant: str, erasure: Erasure, *, blobs: int) -> ErasureReceipt:
        """Write down what was erased, for every restore and import to come (design §8), and tell where it may still be;
        `blobs` only it had. Raises `TRANSPORT_ERROR`, after which nothing is known; `memoree erase` of the same makes
        up for it."""

    @property
    def administration(self) -> Tenants:
        """For who administers the deployment."""

    def granted(self, tenant: str) -> Quota | None:
        """The tenant's own quota, as far as this process knows it already: waits for nothing. Never raises."""

    async def queue_lag(self, tenant: str) -> bool:
        """Whether more than `QUEUE_LAG_COMMANDS` writes of the tenant wait for its writer; not, where nobody can tell.
        Never raises (MemoryProtocol §5)."""

    async def newer(self, tenant: str, commit_seq: int, seconds: float) -> bool:
        """Whether a read would see a later commit than this one; waits so long for one. Raises `TRANSPORT_ERROR`,
        `INTEGRITY_ERROR` and `INDEX_NOT_READY`."""

    async def cursor_key(self) -> bytes:
        """The key that seals the cursors of lists: one for all processes of a deployment, for good. Raises
        `TRANSPORT_ERROR` while the store does not answer."""

    async def readiness(self) -> list[Check]:
        """Checks that really write, read and delete; all of them `ok` means ready."""

    async def close(self) -> None: ...


def new_command(tenant: str, call: Call[Any], *, history: int, clock_now: Clock) -> Command:
    return Command(new_attempt_id(), tenant, history, clock.milliseconds(clock_now()), call)


def read_reply(call: Call[Any], result: Mapping[str, Any], snapshot_commit_seq: int) -> Reply:
    return Reply(
        success(call.request_id, result, context=call.echoed_context()),
        snapshot_commit_seq=snapshot_commit_seq,
    )


def write_reply(call: Call[Any], outcome: Success, snapshot_commit_seq: int) -> Reply:
    return Reply(
        success(call.request_id, outcome.result, context=call.echoed_context(), commit_seq=outcome.commit_seq),
        snapshot_commit_seq=snapshot_commit_seq,
    )


def refusal(request_id: str, error: MemoreeError) -> Reply:
    return Reply(
        failure(request_id, error),
        status=HTTP_STATUS[error.code],
        retry_after_seconds=error.retry_after_seconds,
    )


def write_pending(attempt_id: AttemptId) -> MemoreeError:
    return MemoreeError(
        Code.WRITE_PENDING,
        "the write is queued and not durable yet; ask for its state, or send it again under the same idempotency key",
        details={"attempt_id": attempt_id, "operation_url": f"/v1/operations/{attempt_id}"},
        retry_after_seconds=1.0,
    )


def undecided_state(attempt_id: AttemptId, now_ms: int) -> OperationState:
    """An attempt without a record is pending until no writer would apply it any more (design §5.2). One from the
    future was never made: stores refuse clocks that are this far off."""
    age_ms = now_ms - attempt_time_ms(attempt_id)
    possible = -limits.CLOCK_SKEW_SECONDS_MAX * 1000 <= age_ms <= limits.COMMAND_AGE_SECONDS_MAX * 1000
    return "pending" if possible else "unknown"
