"""Many mutations at once: one look for repeats, one trip to the queue, one watcher for all their outcomes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import apsw

from memoree import limits
from memoree.concurrency import for_each
from memoree.database import attempts
from memoree.errors import Code, MemoreeError
from memoree.ids import AttemptId
from memoree.objects import ObjectStoreError
from memoree.objects.blobs import BlobStore
from memoree.operations.execute import Success, outcome_of, replay_from_snapshot
from memoree.operations.view import View
from memoree.queue import CommandQueue, OutgoingMessage, QueueError
from memoree.reader.environment import ReaderEnvironment
from memoree.reader.generation import Generation
from memoree.reader.outgoing import outgoing, unreachable
from memoree.reader.replica import Replica
from memoree.reader.replicas import Replicas
from memoree.service import Reply, Request, refusal, write_pending, write_reply

STORE_WRITES_AT_ONCE_MAX = 16
APART_SECONDS_PER_WRITE = 0.0002
"""Between two looks at head for many writes, which the writer takes longer for: each look costs a request."""

Result = TypeVar("Result")

log = logging.getLogger(__name__)


Replied = Callable[[int, Reply], None]
Sent = Callable[[], Awaitable[None]]


async def nobody_waits() -> None:
    """Nothing else is to be sent."""


class Answer(Protocol):
    """Settles the request of that number."""

    def __call__(self, number: int, outcome: Success | MemoreeError, commit_seq: int = 0) -> None: ...


class OnView(Protocol):
    """Runs `work` in a thread, over one generation of a tenant's replica."""

    def __call__(self, tenant: str, generation: Generation, work: Callable[[View], Result]) -> Awaitable[Result]: ...


class ManyWrites:
    """Shares the replicas of a service, and thereby its looks at head."""

    def __init__(
        self, environment: ReaderEnvironment, queue: CommandQueue, replicas: Replicas, on_view: OnView
    ) -> None:
        self._environment = environment
        self._queue = queue
        self._replicas = replicas
        self._on_view = on_view

    async def write(
        self,
        tenant: str,
        requests: Sequence[Request],
        replied: Replied,
        sent: Sent = nobody_waits,
        *,
        wait_seconds: float = limits.WRITE_WAIT_SECONDS_DEFAULT,
    ) -> None:
        """`replied` gets the reply to each of these mutations by its position, as soon as there is one, and what
        `memoree.service.Service.call` would say. In which order they are applied is undefined; none names an upload.
        `sent` is awaited once they are in the queue, when only their outcomes are left to be waited for."""
        open_ = dict(enumerate(requests))

        def answer(number: int, outcome: Success | MemoreeError, commit_seq: int = 0) -> None:
            call = open_.pop(number).call
            if isinstance(outcome, MemoreeError):
                replied(number, refusal(call.request_id, outcome))
            else:
                replied(number, write_reply(call, outcome, commit_seq))

        try:
            async with self._replicas.ready(tenant, strong=False) as replica:
                await self._answer_repeats(tenant, replica, dict(open_), answer)
                queued = await self._send(tenant, replica, dict(open_), answer)
                await sent()
                await self._await_outcomes(replica, queued, answer, wait_seconds)
                return
        except MemoreeError as error:
            told = error
        except (ObjectStoreError, QueueError) as error:
            log.warning("%d writes of tenant %s could not be completed: %s", len(open_), tenant, error)
            told = unreachable(error)
        except Exception:
            log.exception("%d writes of tenant %s failed", len(open_), tenant)
            told = MemoreeError(Code.INTERNAL_ERROR, "the operation failed; see the log")
        for number in list(open_):
            answer(number, told)

    async def _answer_repeats(
        self, tenant: str, replica: Replica, requests: Mapping[int, Request], answer: Answer
    ) -> None:
        """As for a single request, what is found counts only in a state that head vouches for now."""

        def look(view: View) -> dict[int, Success | MemoreeError]:
            found: dict[int, Success | MemoreeError] = {}
            for number, request in requests.items():
                try:
                    if (replayed := replay_from_snapshot(view, request.call)) is not None:
                        found[number] = replayed
                except MemoreeError as error:
                    found[number] = error
            return found

        if not await self._on_view(tenant, replica.generation, look):
            return
        await replica.refresh_anew()
        generation = replica.generation
        for number, outcome in (await self._on_view(tenant, generation, look)).items():
            answer(number, outcome, generation.meta.commit_seq)

    async def _send(
        self, tenant: str, replica: Replica, requests: Mapping[int, Request], answer: Answer
    ) -> dict[AttemptId, int]:
        """The attempts that are in the queue now, and the numbers of their requests."""
        await replica.require_not_deleted()
        history = replica.history
        prepared: dict[int, tuple[AttemptId, OutgoingMessage]] = {}

        async def prepare(number: int) -> None:
            request = requests[number]
            content = request.call.content
            assert request.call.upload_id is None
            if content is not None and not content.inline:
                assert content.data is not None
                await BlobStore(self._environment.store, tenant).put(content.data)
            prepared[number] = await outgoing(self._environment, tenant, request, history=history, group=tenant)

        await for_each(requests, prepare, at_once=STORE_WRITES_AT_ONCE_MAX)
        sent: dict[AttemptId, int] = {}
        outcomes = await self._queue.send_batch([message for _, message in prepared.values()])
        for (number, (attempt_id, _)), outcome in zip(prepared.items(), outcomes, strict=True):
            if isinstance(outcome, QueueError):
                answer(number, unreachable(outcome))
            else:
                sent[attempt_id] = number
        return sent

    async def _await_outcomes(
        self, replica: Replica, sent: dict[AttemptId, int], answer: Answer, wait_seconds: float
    ) -> None:
        looked_at: Generation | None = None

        def reached() -> bool:
            nonlocal looked_at
            if (generation := replica.generation) is not looked_at:
                looked_at = generation
                with generation.connection() as db:
                    for attempt_id in list(sent):
                        if (attempt := attempts.find(db, attempt_id)) is not None:
                            answer(sent.pop(attempt_id), _outcome(db, attempt), generation.meta.commit_seq)
            return not sent

        apart = min(len(sent) * APART_SECONDS_PER_WRITE, limits.POLL_SECONDS_MAX)
        if not await self._replicas.until(replica, reached, wait_seconds, apart_seconds=apart):
            for attempt_id, number in sent.items():
                answer(number, write_pending(attempt_id))


def _outcome(db: apsw.Connection, attempt: attempts.Attempt) -> Success | MemoreeError:
    try:
        return outcome_of(db, attempt)
    except MemoreeError as refused:
        return refused
