"""The writer is killed at every step of the write path and of a takeover, again and again, while clients write and
readers look. Every writer of a series is the successor of the one killed before it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.site import Site
from faults.watch import watching

DECIDING = ["received:2", "staged:9", "applying:20", "applied:12"]
COVERING = ["synced:16", "head_put:24", "head_moved:22", "acked:8"]
"""Late enough that what was redelivered, one by one, is through, and a batch of new commands is in hand."""
TAKEOVER = ["takeover_claimed", "takeover_restored", "takeover_ledger", "takeover_synced", "takeover_done"]

ROUNDS_PER_SITE = 10
TIMES_MAX = 30


@pytest.mark.fault_class(44)
@pytest.mark.proves("operations-4")
@pytest.mark.parametrize("points", [DECIDING, TAKEOVER], ids=["deciding", "takeover"])
def test_writers_killed_one_after_the_other_lose_and_repeat_nothing(
    points: list[str], site: Site, tmp_path: Path
) -> None:
    asyncio.run(series_of_kills(site, tmp_path, points, tenants=[site.tenant]))


def test_kills_while_covering_three_tenants_mix_up_nothing(site: Site, tmp_path: Path) -> None:
    tenants = [f"{site.tenant}-{name}" for name in ("a", "b", "c")]
    asyncio.run(series_of_kills(site, tmp_path, COVERING, tenants=tenants))


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_a_night_of_kills(make_site: Callable[..., Site], tmp_path: Path) -> None:
    rounds = int(os.environ.get("MEMOREE_TORTURE_ROUNDS", "200"))
    seed = int(os.environ.get("MEMOREE_TORTURE_SEED") or random.randrange(2**32))
    print(f"to repeat this night: scripts/torture --rounds {rounds} --seed {seed}")
    dice = random.Random(seed)
    for start in range(0, rounds, ROUNDS_PER_SITE):
        points = [_any_point(dice) for _ in range(min(ROUNDS_PER_SITE, rounds - start))]
        site = make_site()
        tenants = [f"{site.tenant}-{number}" for number in range(dice.choice((1, 1, 3)))]
        print(f"rounds {start + 1} to {start + len(points)}, {len(tenants)} tenants: {' '.join(points)}", flush=True)
        asyncio.run(series_of_kills(site, tmp_path, points, tenants=tenants))


def _any_point(dice: random.Random) -> str:
    if dice.random() < 0.35:
        return dice.choice(TAKEOVER)
    point = dice.choice(DECIDING + COVERING).partition(":")[0]
    return f"{point}:{dice.randint(1, TIMES_MAX)}"


async def series_of_kills(site: Site, scratch: Path, points: Sequence[str], *, tenants: Sequence[str]) -> None:
    async with site.clients() as clients, watching(site, tenants) as watches:
        with contextlib.ExitStack() as running:
            async with clients.traffic("kills", tenants=tenants):
                for point in points:
                    with site.writer(crash_at=point) as doomed:
                        await doomed.crashed()
                running.enter_context(site.writer())
            await clients.await_entrusted()
            await clients.repeat_all()
    for tenant in tenants:
        Checker(site, scratch, tenant).check(clients.acknowledged, watches[tenant])
