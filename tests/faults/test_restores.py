"""Restores that are killed at every step, beside a writer that goes on: the tenant is wholly old or wholly new."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.site import Clients, Site
from faults.watch import watching
from memoree.assembly import job_site
from memoree.backup.record import BackupRecord
from memoree.jobs.backup import create

PROGRAM = Path(__file__).with_name("restore_process.py")
OLD = ("takeover_adopted", "takeover_synced", "head_put:2")
"""Up to the compare-and-swap that follows the one of the claim."""
OLD_EACH = (
    "takeover_claimed",
    "takeover_restored",
    "takeover_adopted",
    "takeover_ledger",
    "takeover_synced",
    "head_put:2",
)
NEW = ("head_moved:2", "settling")
NEW_EACH = ("head_moved:2", "takeover_done", "settling")
COVERED = ("history", "prefix", "batch", "commit_seq", "integrity")
STATEMENTS = "SELECT statement FROM claim_revisions"


class Restores:
    """Of one tenant from one backup, one after the other."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    async def run(self, crash_at: str = "") -> int:
        """How the restore's process ended."""
        return await asyncio.to_thread(self._run, crash_at)

    def _run(self, crash_at: str) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{crash_at}\n".encode())
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def restores(site: Site, record: BackupRecord) -> Iterator[Restores]:
    values = site.settings.model_dump(exclude_none=True)
    values["secret_access_key"] = site.s3.secret_access_key
    environment = {f"MEMOREE_{name.upper()}": _text(value) for name, value in values.items()}
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), record.tenant, record.backup_id],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        yield Restores(process)


def _text(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


async def backed_up(site: Site) -> BackupRecord:
    async with job_site(site.settings) as jobs:
        return await create(jobs.tenancy(site.tenant), jobs.scratch.path)


def statements(checker: Checker) -> list[str]:
    with closing(checker.restored(checker.head())) as db:
        return [statement for (statement,) in db.execute(STATEMENTS)]


@pytest.mark.proves("operations-29")
@pytest.mark.fault_class(43)
def test_a_restore_killed_on_the_way_leaves_the_tenant_wholly_old_or_wholly_new(site: Site, tmp_path: Path) -> None:
    asyncio.run(killed_at(OLD, NEW, site, tmp_path))


@pytest.mark.nightly
def test_a_restore_killed_at_each_step_leaves_the_tenant_wholly_old_or_wholly_new(site: Site, tmp_path: Path) -> None:
    asyncio.run(killed_at(OLD_EACH, NEW_EACH, site, tmp_path))


async def killed_at(old_points: Sequence[str], new_points: Sequence[str], site: Site, scratch: Path) -> None:
    checker = Checker(site, scratch)
    async with site.clients() as clients, watching(site, [site.tenant]) as watches:
        with site.writer() as writer:
            await clients.write("kept")
            record = await backed_up(site)
            await clients.write("undone")
            writer.stop()
        before, old = checker.head(), statements(checker)
        with restores(site, record) as crashing:
            for point in old_points:
                assert await crashing.run(point) == -signal.SIGKILL, point
                head = checker.head()
                assert [head[name] for name in COVERED] == [before[name] for name in COVERED], f"killed at {point}"
            assert statements(checker) == old
            for number, point in enumerate(new_points, start=1):
                assert await crashing.run(point) == -signal.SIGKILL, point
                assert checker.head()["history"] == number, f"killed at {point}"
                assert len(statements(checker)) == 1
        await went_on(site, clients)
    checker.check([clients.acknowledged[0], clients.acknowledged[-1]], watches[site.tenant])


async def went_on(site: Site, clients: Clients) -> None:
    with site.writer():
        await clients.write("after all of it")
        verified = await clients.call("verify", {}, strong=True)
        assert verified.envelope["result"]["issues"] == []
