"""An event loop whose time is virtual, and the processes that live in it: each may be frozen or killed at any moment.

Every callback belongs to the process in whose context it was scheduled. Callbacks of one process run in the order they
became ready, as in a real loop; of several processes that are ready at one instant a seeded one comes first. There are
no threads and no sleeping: when nothing is ready, time jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar

Result = TypeVar("Result")

CALLBACKS_AT_ONE_INSTANT_MAX = 20_000
"""More than that without any time going by: something spins."""
ENDING_ROUNDS_MAX = 100
SWITCHED_OUT_SHARE = 0.2
"""Of the work given to threads: so often the thread waits for its turn, or its result for the loop's."""
SWITCHED_OUT_SECONDS_MAX = 0.03

_process: ContextVar[Process] = ContextVar("process")


class Stuck(AssertionError):
    """The program spins, waits for what can never come, or does not end when it is told to."""


class Process:
    """What is frozen or killed as one: its tasks, its timers, and the work it gave to threads."""

    def __init__(self, loop: SimulatedLoop, name: str, *, clock_offset_seconds: float = 0.0) -> None:
        self.name = name
        self.clock_offset_seconds = clock_offset_seconds
        self.is_alive = True
        self.ready: deque[_Handle] = deque()
        self.is_running = True
        """Neither frozen nor dead: what is ready may run."""
        self.callbacks_left: int | None = None
        """Until `then`, if any: that is how a fault finds the place between two awaits."""
        self.then: Callable[[], None] = _nothing
        self.before_request: Callable[[str, str], bool] | None = None
        """Told verb and key of what it is about to ask the store; true when it was struck by that."""
        self.context = copy_context()
        self.context.run(_process.set, self)
        self._loop = loop

    def __repr__(self) -> str:
        return self.name

    def after(self, callbacks: int, then: Callable[[], None]) -> None:
        """Do something between two callbacks of this process."""
        self.callbacks_left, self.then = callbacks, then

    def freeze(self) -> None:
        """As SIGSTOP: time goes on, nothing of this process does."""
        self.is_running = self._loop.is_ending
        self._loop.hold(self)

    def thaw(self) -> None:
        if self.is_alive:
            self.is_running = True
            self._loop.release(self)

    def kill(self) -> None:
        """As SIGKILL: what it has asked others for happens all the same."""
        self.is_alive = self.is_running = self._loop.is_ending
        self._loop.hold(self)

    def revive(self) -> None:
        """So that its tasks can be brought to their end, once nothing matters any more."""
        self.is_alive = True
        self.callbacks_left = self.before_request = None
        self.thaw()

    def task(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        return self._loop.create_task(work, context=self.context.copy())


def _nothing() -> None:
    """Nothing is to happen."""


def current_process() -> Process:
    """Whose callback is running."""
    return _process.get()


class _Handle:
    """Stands in for `asyncio.Handle` and `asyncio.TimerHandle`."""

    __slots__ = ("args", "callback", "context", "process")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context) -> None:
        self.callback: Callable[..., Any] | None = callback
        self.args = args
        self.context = context
        self.process = context[_process]

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Begin with a `Process` to run something in."""

    def __init__(self, random: Random) -> None:
        self.now = 0.0
        self.is_ending = False
        self.faults: list[BaseException] = []
        """What nobody was there to see."""
        self._random = random
        self._runnable: list[Process] = []
        self._timers: list[tuple[float, int, _Handle]] = []
        self._timers_made = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._processes: list[Process] = []
        self.world = Process(self, "world")
        """The store, the queue and the passing of time: never frozen."""

    # --- what asyncio asks of a loop ----------------------------------------------------------------------------

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        handle = _Handle(callback, args, context if context is not None else copy_context())
        self._make_ready(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
        handle = _Handle(callback, args, context if context is not None else copy_context())
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name="", context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Whatever the executor, the work is done inline, a moment later."""
        future = self.create_future()
        self._begin_work(lambda: func(*args), future)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_ending:
            self.faults.append(context.get("exception") or Stuck(context["message"]))

    # --- threads ------------------------------------------------------------------------------------------------

    def _begin_work(self, work: Callable[[], Any], future: Any) -> None:
        if self._random.random() < SWITCHED_OUT_SHARE:
            self.call_later(self._random.random() * SWITCHED_OUT_SECONDS_MAX, self._work, work, future)
        else:
            self.call_soon(self._work, work, future)

    def _work(self, work: Callable[[], Any], future: Any) -> None:
        if future.cancelled():
            return
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:
            error = raised
        if self._random.random() < SWITCHED_OUT_SHARE:
            delay = self._random.random() * SWITCHED_OUT_SECONDS_MAX
            self.call_later(delay, _settle, future, result, error)
        else:
            _settle(future, result, error)

    # --- running ------------------------------------------------------------------------------------------------

    def in_world(self, delay: float, callback: Callable[..., Any], *args: Any) -> None:
        """Something that happens whatever becomes of the process that caused it."""
        self.call_at(self.now + delay, callback, *args, context=self.world.context)

    def process(self, name: str, *, clock_offset_seconds: float = 0.0) -> Process:
        process = Process(self, name, clock_offset_seconds=clock_offset_seconds)
        self._processes.append(process)
        return process

    def run_until(self, reached: Callable[[], bool], seconds: float) -> bool:
        """Whether it was reached within that much virtual time."""
        deadline = self.now + seconds
        asyncio._set_running_loop(self)
        try:
            while not reached():
                if not self._advance(deadline):
                    return reached()
            return True
        finally:
            asyncio._set_running_loop(None)

    def inside(self, work: Callable[[], Result]) -> Result:
        """Do something as if a callback of the world did it."""
        asyncio._set_running_loop(self)
        try:
            return self.world.context.run(work)
        finally:
            asyncio._set_running_loop(None)

    def end(self) -> None:
        """Bring every task to its end, so that connections are closed and nothing is left pending."""
        self.is_ending = True
        for process in self._processes:
            process.revive()
        for _ in range(ENDING_ROUNDS_MAX):
            pending = [task for task in self._tasks if not task.done()]
            if not pending:
                return
            for task in pending:
                task.cancel()
            self.run_until(lambda: False, 1.0)
        raise Stuck(f"these tasks do not end: {pending}")

    def _advance(self, deadline: float) -> bool:
        """Run what is ready now, or let time go by; false when there is nothing left until the deadline."""
        if not self._runnable:
            if not self._timers or self._timers[0][0] > deadline:
                self.now = max(self.now, deadline)
                return False
            when = self._timers[0][0]
            self.now = max(self.now, when)
            while self._timers and self._timers[0][0] <= when:
                handle = heapq.heappop(self._timers)[2]
                if handle.callback is not None:
                    self._make_ready(handle)
        for _ in range(CALLBACKS_AT_ONE_INSTANT_MAX):
            if not self._runnable:
                return True
            self._run_one()
        raise Stuck(f"nothing but callbacks at {self.now:.3f} s")

    def _run_one(self) -> None:
        runnable = self._runnable
        process = runnable[0] if len(runnable) == 1 else runnable[int(self._random.random() * len(runnable))]
        handle = process.ready.popleft()
        if not process.ready:
            runnable.remove(process)
        if (callback := handle.callback) is None:
            return
        handle.context.run(callback, *handle.args)
        if process.callbacks_left is not None:
            process.callbacks_left -= 1
            if process.callbacks_left <= 0:
                process.callbacks_left = None
                process.then()

    def _make_ready(self, handle: _Handle) -> None:
        process = handle.process
        if process.is_running and not process.ready:
            self._runnable.append(process)
        process.ready.append(handle)

    def hold(self, process: Process) -> None:
        if not self.is_ending and process in self._runnable:
            self._runnable.remove(process)

    def release(self, process: Process) -> None:
        if process.ready and process not in self._runnable:
            self._runnable.append(process)


class InlineExecutor(Executor):
    """For `submit`; what goes through the loop needs no executor."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        future: Future[Result] = Future()
        self._loop._begin_work(lambda: fn(*args, **kwargs), future)
        return future


def _settle(future: Any, result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
