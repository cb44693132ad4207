"""What a dead writer leaves behind: a Litestream child, a local directory. None of it may matter."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import apsw

from faults.checker import Checker
from faults.site import Site, descendants, until
from faults.watch import watching


def test_a_kept_local_directory_is_never_reused(site: Site, tmp_path: Path) -> None:
    """The dead writer's database holds a commit that never left the host; its child is gone with it."""

    async def run() -> None:
        async with site.clients() as clients, watching(site, [site.tenant]) as watches:
            with site.writer() as first:
                await clients.write_many("before", 3)
                children = descendants(first.process.pid)
                assert children
                first.kill()
                await until(lambda: not any(map(is_running, children)), 10, what="the end of the dead writer's child")
            kept = databases(site)
            assert len(kept) == 1
            commit_behind_the_back(kept[0])
            with site.writer():
                await clients.write_many("after", 3)
                assert not kept[0].exists()
                await clients.repeat_all()
        checker = Checker(site, tmp_path)
        checker.check(clients.acknowledged, watches[site.tenant])
        assert checker.head()["commit_seq"] == 6

    asyncio.run(run())


def test_an_orphaned_litestream_that_keeps_uploading_harms_nobody(site: Site, tmp_path: Path) -> None:
    """Its launcher is frozen and cannot end it, and the next writer is on another host."""

    async def run() -> None:
        async with site.clients() as clients, watching(site, [site.tenant]) as watches:
            with site.writer() as first:
                await clients.write_many("before", 3)
                launcher, orphan = descendants(first.process.pid)
                os.kill(launcher, signal.SIGSTOP)
                first.kill()
            try:
                checker = Checker(site, tmp_path)
                dead = checker.head()["prefix"]
                with site.writer(runtime_dir=tmp_path / "another host"):
                    await clients.write_many("after", 3)
                    uploaded = len(checker.keys(dead))
                    [kept] = databases(site)
                    commit_behind_the_back(kept)
                    await until(lambda: len(checker.keys(dead)) > uploaded, 10, what="an upload of the orphan")
                    assert is_running(orphan)
                    await clients.write_many("beside the orphan", 3)
                    async with site.clients() as fresh:
                        fresh.acknowledged = clients.acknowledged
                        await fresh.repeat_all()
            finally:
                os.kill(launcher, signal.SIGCONT)
            await until(lambda: not is_running(orphan), 10, what="the end of the orphan")
        checker.check(clients.acknowledged, watches[site.tenant])

    asyncio.run(run())


def databases(site: Site) -> list[Path]:
    return list((site.directory / "runtime" / "epochs").rglob("tenant.sqlite3"))


def commit_behind_the_back(database: Path) -> None:
    """A batch that no head will ever cover, one commit ahead of everything acknowledged."""
    db = apsw.Connection(str(database))
    db.execute("UPDATE meta SET batch = batch + 1, commit_seq = commit_seq + 1, hlc = hlc + 1")
    db.close()


def is_running(pid: int) -> bool:
    """Zombies do not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
