"""When a wait looks at head: once or twice about when the thing is there, not all the way until then."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path

import pytest

from memoree import limits
from memoree.reader.pace import Pace, pauses
from memoree.reader.replicas import Replicas
from replication.memory_store import MemoryStore

from .recorded import TENANT, Recorder, Restores, environment


@pytest.mark.parametrize("takes_seconds", [0.008, 0.035])
def test_the_first_look_comes_shortly_before_things_are_there(takes_seconds: float) -> None:
    pace = Pace()
    for _ in range(200):
        pace.learn(1 if pace.first_seconds >= takes_seconds else 2)

    assert 0.85 * takes_seconds <= pace.first_seconds <= 1.05 * takes_seconds


@pytest.mark.parametrize(("looks", "settles_at"), [(0, limits.POLL_SECONDS_MIN), (9, limits.POLL_SECONDS_MAX)])
def test_the_first_look_stays_within_the_bounds_of_polling(looks: int, settles_at: float) -> None:
    pace = Pace()
    for _ in range(500):
        pace.learn(looks)

    assert pace.first_seconds == settles_at


def test_the_pauses_between_looks_grow_to_their_bound() -> None:
    first, *others = islice(pauses(0.03), 40)

    assert (first, others[0], others[-1]) == (0.03, limits.POLL_SECONDS_MIN, limits.POLL_SECONDS_MAX)
    assert others == sorted(others)


def test_a_wait_ends_with_another_ones_look(tmp_path: Path) -> None:
    store = MemoryStore()
    restores = Restores(store)
    recorder = restores.know(Recorder(store, tmp_path))
    recorder.write("first")

    async def run() -> None:
        made = environment(restores, tmp_path / "runtime", staleness=3600.0)
        replicas = Replicas(made)
        never = Pace()
        never.first_seconds = 3600.0
        async with replicas.ready(TENANT, strong=False) as replica:
            waiting = asyncio.create_task(
                replicas.until(replica, lambda: replica.generation.meta.commit_seq >= 2, 3600.0, never)
            )
            await asyncio.sleep(0)
            recorder.write("second")
            await replica.refresh()
            assert await asyncio.wait_for(waiting, 10.0)
        await replicas.close()
        made.executor.shutdown()
        made.directory.remove()

    asyncio.run(run())
    recorder.close()
