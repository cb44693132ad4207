"""A queue and a reign that do as they are told, for faults that the real ones cannot be made to show."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from memoree.errors import MemoreeError
from memoree.ids import AttemptId
from memoree.objects import ObjectStore
from memoree.process_directory import ProcessDirectory
from memoree.queue import Message, OutgoingMessage, QueueError, QueueStats
from memoree.replication.head import Head
from memoree.replication.litestream import ReplicaTarget
from memoree.replication.replicator import LitestreamReplicator
from memoree.writer.environment import WriterEnvironment, WriterTimings
from operations.bench import FACTS
from replication.memory_store import MemoryStore

OWNER = "01M8PH26EJXJ6FX1M8AXJ6N993"


def environment(directory: Path, *, store: ObjectStore | None = None, **timings: Any) -> WriterEnvironment:
    return WriterEnvironment(
        store=store or MemoryStore(),
        replicator=LitestreamReplicator(lambda prefix: ReplicaTarget(f"file:///nowhere/{prefix}")),
        directory=ProcessDirectory(directory),
        facts=FACTS,
        executor=ThreadPoolExecutor(1),
        timings=replace(WriterTimings(), **timings),
    )


class ScriptedQueue:
    """`faults` names methods that fail."""

    def __init__(self) -> None:
        self.acked: list[str] = []
        self.given_back: list[tuple[list[str], float]] = []
        self.waiting: deque[list[Message]] = deque()
        self.faults: set[str] = set()
        self.scrubs = 0
        self.backlog = 0
        self.looks = 0
        self.receives: list[Collection[str]] = []

    def _check(self, name: str) -> None:
        if name in self.faults:
            raise QueueError(f"scripted: {name}")

    async def receive(
        self,
        *,
        max_messages: int,
        wait_seconds: float,
        visibility_seconds: float,
        except_groups: Collection[str] = (),
    ) -> list[Message]:
        self.receives.append(except_groups)
        self._check("receive")
        if self.waiting:
            return self.waiting.popleft()
        await asyncio.sleep(0.005)
        return []

    async def ack(self, messages: Sequence[Message]) -> None:
        self._check("ack")
        self.acked += [message.message_id for message in messages]

    async def set_visibility(self, messages: Sequence[Message], seconds: float) -> None:
        self._check("set_visibility")
        self.given_back.append(([message.message_id for message in messages], seconds))

    async def send(self, message: OutgoingMessage) -> str:
        raise NotImplementedError

    async def send_batch(self, messages: Sequence[OutgoingMessage]) -> Sequence[str | QueueError]:
        raise NotImplementedError

    async def waiting_in(self, group: str, *, most: int) -> int | None:
        return None

    async def stats(self) -> QueueStats:
        self.looks += 1
        return QueueStats(self.backlog, 0, 0, None)

    async def scrub(self) -> None:
        self.scrubs += 1
        self._check("scrub")

    async def close(self) -> None: ...


@dataclass
class ScriptedReign:
    """Stands in for `Reign`. `fault` is raised by the next commits, as often as it is there."""

    owner: str = OWNER
    settled: bool = False
    used_at: float = field(default_factory=time.monotonic)
    faults: deque[BaseException] = field(default_factory=deque)
    committed: list[list[AttemptId]] = field(default_factory=list)
    refused: list[AttemptId] = field(default_factory=list)
    decided: set[AttemptId] = field(default_factory=set)
    abandoned: bool = False
    settle_fault: BaseException | None = None
    is_rewritten: bool = True
    on_abandon: Callable[[], object] = lambda: None

    @property
    def head(self) -> Any:
        return Head("w", 0, 0, 1, self.owner, None, None, 0, 0, 0, 0, 1, "", "")

    async def commit(self, commands: Sequence[Any], presence: Any) -> None:
        if self.faults:
            raise self.faults.popleft()
        self.committed.append([command.attempt_id for command in commands])
        self.decided.update(self.committed[-1])

    async def refuse(self, attempt_id: AttemptId, error: MemoreeError) -> None:
        self.refused.append(attempt_id)

    def has_decided(self, attempt_id: AttemptId) -> bool:
        return attempt_id in self.decided

    async def is_compact(self) -> bool:
        return self.is_rewritten

    async def settle(self) -> None:
        if self.settle_fault is not None:
            raise self.settle_fault
        self.settled = True

    async def resume(self) -> None:
        self.settled = False

    async def abandon(self) -> None:
        self.abandoned = True
        self.on_abandon()


async def until(reached: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.002)
