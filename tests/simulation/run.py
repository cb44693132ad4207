"""One seed, from the weather report to the last audit."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random

from memoree import limits
from simulation.actors import ApiDeaths, Client, Collector, Disasters, refused_without_head
from simulation.litestream import Habits
from simulation.plan import LONG_EVERY, Plan
from simulation.queue import QueueWeather
from simulation.store import LATE_SECONDS_MAX, Weather
from simulation.world import ApiHost, Beginning, World, WriterHost, world

STORMY_SECONDS_MAX = 90.0
CALM_SECONDS_MAX = 200.0
"""Once nothing goes wrong any more, everything must be decided within that."""
EXPECTED_ERROR = "LitestreamGone('it does not start')"
"""The one error that may be logged: everything else must be judged by the program, not stumbled over."""
MEMORY_DIRECTORY = Path("/dev/shm")


def scratch_root() -> Path | None:
    """Where files cost no disk, if there is such a place."""
    return MEMORY_DIRECTORY if os.access(MEMORY_DIRECTORY, os.W_OK) else None


@contextmanager
def quiet_collector() -> Iterator[None]:
    """A run leaves cycles behind, and nothing of before it takes part in them."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class SeedFailed(AssertionError):
    """A violated invariant, with the seed that shows it."""

    def __init__(self, seed: int, error: BaseException, trace: list[str]) -> None:
        super().__init__(f"seed {seed}: {error}")
        self.seed = seed
        self.trace = trace


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a sound run amounted to."""

    seed: int
    virtual_seconds: float
    epochs: int
    commits: int
    kept: int
    """Takeovers that began with commits no head had covered."""
    trace: list[str]


def run_seed(
    seed: int, scratch: Path, *, focus: Callable[[Plan], Plan] = lambda plan: plan, keep_trace: bool = False
) -> Outcome:
    """`focus` changes what the seed planned. Raises `SeedFailed`."""
    trace: list[str] = []
    try:
        began = beginning(scratch)
        random = Random(seed)
        plan = focus(Plan.of(random, is_long=seed % LONG_EVERY == 0))
        with world(random, plan, scratch / f"{seed}", keep_trace=keep_trace) as made:
            trace = made.trace.lines
            if not plan.is_born:
                made.begin(began)
            _play(made)
            records = [made.judge.record(tenant) for tenant in made.tenants]
    except Exception as error:
        raise SeedFailed(seed, error, trace) from error
    return Outcome(
        seed,
        made.loop.now,
        sum(record.head["epoch"] for record in records if record.head is not None),
        sum(record.commit_seq for record in records),
        sum(record.kept for record in records),
        trace,
    )


def _play(made: World, *, name: str = "c") -> None:
    made.rough()
    plan = made.plan
    apis = [ApiHost(made) for _ in range(plan.apis)]
    deaths = [ApiDeaths(made, api) for api in apis]
    for each in deaths:
        made.loop.inside(each.begin)
    disasters = [Disasters(made, WriterHost(made)) for _ in range(plan.writers)]
    for disaster in disasters:
        made.loop.inside(lambda disaster=disaster: disaster.begin(supervised=made.random.random() < 0.5))
    if plan.collects:
        made.litter()
        made.loop.inside(Collector(made).start)
    clients = [made.loop.inside(lambda n=n: Client(made, apis, n, name=name)) for n in range(plan.clients)]

    undecided = [client.task for client in clients]

    def ended(task: asyncio.Task[None]) -> None:
        undecided.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            made.loop.faults.append(error)

    for client in clients:
        made.loop.inside(lambda client=client: client.task.add_done_callback(ended))

    def all_decided() -> bool:
        if made.loop.faults:
            raise made.loop.faults[0]
        return not undecided

    if not made.loop.run_until(all_decided, STORMY_SECONDS_MAX):
        _calm(made, disasters)
        assert made.loop.run_until(all_decided, CALM_SECONDS_MAX), "a write is never decided"
    _calm(made, disasters)
    for tenant in made.tenants:
        made.judge.audit(tenant, thorough=True)
    for each in disasters:
        assert each.children_uploading <= plan.tenants, "W4: a reign has ended, and its child goes on"
    if plan.loses_head:
        for death in deaths:
            death.is_over = True
        _lose_head(made, apis, disasters[0])
    unexpected = [error for error in made.errors if EXPECTED_ERROR not in error]
    assert not unexpected, unexpected


def _lose_head(made: World, apis: list[ApiHost], writer: Disasters) -> None:
    """A head that is gone is damage: nobody takes the tenant for an empty one."""
    tenant = made.tenants[0]
    made.loop.run_until(lambda: False, limits.HEAD_PUT_TIMEOUT_SECONDS + LATE_SECONDS_MAX)  # no birth makes it again
    made.bucket.delete(f"tenants/{tenant}/head.json")
    fresh = ApiHost(made)
    made.loop.inside(fresh.start)
    asked = made.loop.inside(lambda: refused_without_head(made, tenant, [*apis, fresh], writer.host))
    assert made.loop.run_until(asked.done, CALM_SECONDS_MAX), "W3: nobody says that head is missing"
    asked.result()
    made.errors.clear()


def _calm(made: World, disasters: list[Disasters]) -> None:
    made.bucket.weather, made.broker.weather = Weather(slow=0.0), QueueWeather()
    for each in disasters:
        each.is_over = True


@lru_cache(maxsize=1)
def beginning(scratch: Path) -> Beginning:
    """A tenant that a writer gave birth to, wrote to, and settled."""
    random = Random(0)
    calm = Plan(
        tenants=1,
        is_born=True,
        writers=1,
        apis=1,
        clients=1,
        writes_per_client=1,
        thinking_seconds=0.0,
        weather=Weather(),
        queue_weather=QueueWeather(),
        habits=Habits(),
        page_keys_max=1000,
        disasters=0,
        callbacks_between=1,
        at_head_share=0.0,
        clock_offset_seconds_max=0.0,
        settle_after_idle=0.5,
        collects=False,
        api_deaths=0,
        loses_head=False,
    )
    with world(random, calm, scratch / "beginning", keep_trace=False) as made:
        _play(made, name="past")
        head = made.judge.record("t0").head
        assert head is not None
        settled = made.loop.run_until(lambda: made.judge.record("t0").head["released_at"] is not None, 30.0)
        assert settled
        return Beginning(dict(made.bucket.objects), made.files)
