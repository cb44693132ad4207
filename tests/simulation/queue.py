"""A simulated FIFO queue: groups, visibility, redelivery, and requests whose fate is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from memoree.queue import Message, OutgoingMessage, QueueError, QueueStats
from simulation.loop import Process, SimulatedLoop
from simulation.trace import Trace

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class QueueWeather:
    """Shares of the requests."""

    lost: float = 0.0
    answer_lost: float = 0.0


@dataclass(slots=True)
class _Waiting:
    number: int
    body: str
    group: str
    receives: int = 0
    visible_at: float = 0.0
    receipt: str = ""


class Broker:
    """What the queue holds."""

    def __init__(self, loop: SimulatedLoop, random: Random, trace: Trace) -> None:
        self.loop, self.random, self.trace = loop, random, trace
        self.weather = QueueWeather()
        self.on_ack: list[Callable[[str, str], None]] = []
        """Told the group and the body of each message that is removed."""
        self._messages: dict[int, _Waiting] = {}
        self._sent: dict[str, int] = {}
        self._arrived: list[asyncio.Future[None]] = []

    def client(self, process: Process) -> QueueClient:
        return QueueClient(self, process)

    def send(self, message: OutgoingMessage) -> str:
        number = self._sent.get(message.dedup_id)
        if number is None:
            number = self._sent[message.dedup_id] = len(self._sent) + 1
            self._messages[number] = _Waiting(number, message.body, message.group)
            self._wake()
        return str(number)

    def take(self, most: int, visibility_seconds: float, except_groups: Collection[str]) -> list[Message]:
        now = self.loop.now
        locked = {each.group for each in self._messages.values() if each.visible_at > now} | set(except_groups)
        taken = []
        for each in self._messages.values():
            if each.group in locked or len(taken) == most:
                continue
            each.receives += 1
            each.visible_at = now + visibility_seconds
            each.receipt = f"{each.number}.{each.receives}"
            taken.append(Message(str(each.number), each.body, each.group, each.receipt, each.receives, now))
        return taken

    def ack(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if (found := self._held(message)) is not None:
                del self._messages[found.number]
                for watcher in self.on_ack:
                    watcher(found.group, found.body)
        self._wake()

    def set_visibility(self, messages: Sequence[Message], seconds: float) -> None:
        for message in messages:
            if (found := self._held(message)) is not None:
                found.visible_at = self.loop.now + seconds
        self.loop.in_world(seconds + 0.001, self._wake)

    def _held(self, message: Message) -> _Waiting | None:
        found = self._messages.get(int(message.message_id))
        return found if found is not None and found.receipt == message.receipt else None

    def arrival(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self.loop.create_future()
        self._arrived.append(future)
        return future

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, []
        for future in arrived:
            if not future.done():
                future.set_result(None)


class QueueClient:
    """`CommandQueue`, for one process."""

    def __init__(self, broker: Broker, process: Process) -> None:
        self._broker, self._process = broker, process

    async def send(self, message: OutgoingMessage) -> str:
        return await self._request(f"SEND {message.dedup_id}", lambda: self._broker.send(message))

    async def send_batch(self, messages: Sequence[OutgoingMessage]) -> Sequence[str | QueueError]:
        return [await self.send(message) for message in messages]

    async def receive(
        self,
        *,
        max_messages: int,
        wait_seconds: float,
        visibility_seconds: float,
        except_groups: Collection[str] = (),
    ) -> list[Message]:
        deadline = self._broker.loop.now + wait_seconds
        while True:
            found = await self._request(
                "RECEIVE", lambda: self._broker.take(max_messages, visibility_seconds, except_groups)
            )
            left = deadline - self._broker.loop.now
            if found or left <= 0:
                return found
            await asyncio.wait((self._broker.arrival(),), timeout=left)

    async def ack(self, messages: Sequence[Message]) -> None:
        await self._request(f"ACK {_numbers(messages)}", lambda: self._broker.ack(messages))

    async def set_visibility(self, messages: Sequence[Message], seconds: float) -> None:
        await self._request(
            f"HIDE {_numbers(messages)} {seconds:.2f}", lambda: self._broker.set_visibility(messages, seconds)
        )

    async def waiting_in(self, group: str, *, most: int) -> int | None:
        return None

    async def stats(self) -> QueueStats:
        return QueueStats(0, 0, 0, None)

    async def scrub(self) -> None:
        return None

    async def close(self) -> None:
        return None

    async def _request(self, what: str, effect: Callable[[], Result]) -> Result:
        """A receive whose answer is lost has delivered all the same: its messages return when their time is up."""
        broker = self._broker
        if broker.loop.is_ending:
            raise QueueError("the run is over")
        answer: asyncio.Future[Any] = broker.loop.create_future()
        luck = broker.random.random()
        lost = luck < broker.weather.lost
        unheard = lost or luck < broker.weather.lost + broker.weather.answer_lost
        seconds = 0.001 + broker.random.random() * 0.003

        def arrive() -> None:
            result = None if lost else effect()
            broker.trace.note(self._process, f"{what}{' is lost' if lost else ''}", None, unheard)
            if not answer.done():
                if unheard:
                    answer.set_exception(QueueError(f"no answer to {what}"))
                else:
                    answer.set_result(result)

        broker.loop.in_world(seconds, arrive)
        return await answer


def _numbers(messages: Sequence[Message]) -> str:
    return ",".join(message.message_id for message in messages)
