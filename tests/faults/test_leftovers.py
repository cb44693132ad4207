"""What a dead writer leaves behind: a Litestream child, a local directory. None of it may matter."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import apsw

from faults.checker import Checker
from faults.site import Site, descendants, until
from faults.watch import watching
from memoree.binaries import find_binary


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
    """A child of the dead writer lives on and uploads what is committed behind its back; the next writer is on
    another host, so that nobody sweeps the directory."""

    async def run() -> None:
        async with site.clients() as clients, watching(site, [site.tenant]) as watches:
            with site.writer():
                await clients.write_many("before", 3)
            checker = Checker(site, tmp_path)
            dead = checker.head()["prefix"]
            [kept] = databases(site)
            with orphan(site, kept), site.writer(runtime_dir=tmp_path / "another host"):
                await clients.write_many("after", 3)
                assert checker.head()["prefix"] != dead
                uploaded = len(checker.keys(dead))
                commit_behind_the_back(kept)
                await until(lambda: len(checker.keys(dead)) > uploaded, 20, what="an upload of the orphan")
                await clients.write_many("beside the orphan", 3)
                async with site.clients() as fresh:
                    fresh.acknowledged = clients.acknowledged
                    await fresh.repeat_all()
        checker.check(clients.acknowledged, watches[site.tenant])

    asyncio.run(run())


@contextlib.contextmanager
def orphan(site: Site, database: Path) -> Iterator[None]:
    """The dead writer's Litestream, with the configuration it had, and nobody to end it."""
    s3 = site.s3
    credentials = {"AWS_ACCESS_KEY_ID": s3.access_key_id or "", "AWS_SECRET_ACCESS_KEY": s3.secret_access_key or ""}
    configuration = database.with_name("litestream.yml")
    with (database.with_name("orphan.log")).open("wb") as log:
        process = subprocess.Popen(
            [str(find_binary("litestream")), "replicate", "-config", str(configuration)],
            env=credentials,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
        assert process.poll() is None, "the orphan died"
    finally:
        process.kill()
        process.wait()


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
