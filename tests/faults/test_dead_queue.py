"""The queue does not answer: reads go on, writes say that their outcome is unknown, and nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw

from faults.checker import Checker
from faults.site import Site


def test_a_dead_queue_stops_writes_and_nothing_else(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with site.clients() as clients:
            with site.writer() as writer:
                await clients.write_many("before", 3)
                stuck = apsw.Connection(str(site.directory / "queue.sqlite3"))
                stuck.execute("BEGIN EXCLUSIVE")
                write = asyncio.create_task(
                    clients.call("claim.assert", {"claim_type": "fact", "statement": "statement x"}, key="x")
                )
                first = clients.acknowledged[0]
                read = await clients.call("claim.get", {"claim_id": first.claim_id}, strong=True)
                assert read.status == 200, read.envelope
                reply = await write
                assert (reply.status, reply.envelope["error"]["code"]) == (503, "TRANSPORT_ERROR"), reply.envelope
                assert reply.envelope["error"]["retryable"]
                stuck.execute("ROLLBACK")
                stuck.close()
                assert writer.process.poll() is None, writer.log()
                await clients.decided("claim.assert", {"claim_type": "fact", "statement": "statement x"}, key="x")
                await clients.write_many("after", 3)
                await clients.repeat_all()
        Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


def test_a_queue_that_lost_its_file_loses_no_acknowledged_write(site: Site, tmp_path: Path) -> None:
    """What it held was acknowledged to nobody; the clients send it again."""

    async def run() -> None:
        queue = site.directory / "queue.sqlite3"
        async with site.clients() as clients:
            with site.writer() as writer:
                await clients.write_many("before", 3)
                writer.kill()
            undecided = asyncio.create_task(clients.write_many("lost", 3))
            await asyncio.sleep(0.2)
            for path in files_of(queue):
                path.write_bytes(b"damage" * 1000)
            reply = await clients.call("claim.assert", {"claim_type": "fact", "statement": "y"}, key="y")
            assert reply.envelope["error"]["retryable"], reply.envelope
            checks = {check.name: check.ok for check in await clients.service.readiness()}
            assert checks == {"store": True, "queue": False, "replicas": True}
            for path in files_of(queue):
                path.unlink()
            with site.writer():
                await undecided
                await clients.write_many("after", 3)
                await clients.repeat_all()
        Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


def files_of(queue: Path) -> list[Path]:
    """The database and what SQLite keeps beside it."""
    return [path for suffix in ("", "-wal", "-shm") if (path := queue.with_name(queue.name + suffix)).exists()]
