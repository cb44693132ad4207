"""The store did what it was asked, or did not, and the writer cannot know: every such doubt is resolved by looking."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from faults.checker import Checker
from faults.proxy import Rule, store_proxy
from faults.site import Clients, Site, make_request, until
from faults.watch import watching
from memoree.clock import utc_now
from memoree.command import Command, to_message
from memoree.objects.blobs import BlobStore
from memoree.objects.s3 import S3Store
from memoree.queue import OutgoingMessage
from memoree.queue.sqlite import SqliteQueue
from memoree.service import new_command

HEAD = r"/head\.json$"
LTX = r"/ltx/.*/0000/.*\.ltx"
LATE_SECONDS = 4.0
"""Longer than the writer waits for the answer to a head write."""


def test_answers_lost_at_every_write_of_a_birth_and_of_commits_change_nothing(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with store_proxy(site.s3.endpoint_url or "") as proxy:
            rules = [
                proxy.add(Rule("PUT", HEAD, "lose_answer", times=6)),  # birth, claim, takeover's end, three commits
                proxy.add(Rule("PUT", r"/epochs/", "lose_answer")),
                proxy.add(Rule("PUT", LTX, "lose_answer", times=2)),
            ]
            async with site.clients() as clients, watching(site, [site.tenant]) as watches:
                with site.writer(endpoint_url=proxy.url):
                    for number in range(4):
                        await clients.write(f"w-{number}")
                    await clients.write_cited("cited")
                    await clients.repeat_all()
            assert all(rule.is_spent for rule in rules), rules
            assert Checker(site, tmp_path).head()["epoch"] <= 2, "a reign was given up over more than its ledger entry"
            Checker(site, tmp_path).check(clients.acknowledged, watches[site.tenant])

    asyncio.run(run())


def test_a_head_write_that_arrives_after_it_was_given_up_moves_nothing_back(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with store_proxy(site.s3.endpoint_url or "") as proxy, site.clients() as clients:
            with site.writer(endpoint_url=proxy.url):
                await clients.write("before")
                late = proxy.add(Rule("PUT", HEAD, "hold"))
                await clients.write("held up")
                later = [await clients.write(f"after-{number}") for number in range(3)]
                head = Checker(site, tmp_path).head()
                late.release.set()
                await clients.write("last")
                assert Checker(site, tmp_path).head()["commit_seq"] > later[-1].commit_seq
                assert late.is_spent and head["commit_seq"] == later[-1].commit_seq
            Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


@pytest.mark.parametrize("path", [HEAD, LTX], ids=["at the head write", "at the sync"])
def test_a_partition_delays_a_write_and_decides_it_once(path: str, site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with store_proxy(site.s3.endpoint_url or "") as proxy, site.clients() as clients:
            with site.writer(endpoint_url=proxy.url):
                await clients.write("before")
                rule = proxy.add(Rule("PUT", path, "lose_request", before=proxy.cut))
                pending = asyncio.create_task(clients.write_many("during", 4))
                await until(lambda: rule.is_spent, 20, what="the partition")
                await asyncio.sleep(LATE_SECONDS / 2)
                assert not pending.done(), "acknowledged without a store"
                proxy.mend()
                await pending
                await clients.repeat_all()
            Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


def test_a_writer_killed_while_its_head_write_is_undecided_has_taken_nothing_out_of_the_queue(
    site: Site, tmp_path: Path
) -> None:
    async def run() -> None:
        async with store_proxy(site.s3.endpoint_url or "") as proxy, site.clients() as clients:
            with site.writer(endpoint_url=proxy.url) as doomed:
                await clients.write("before")
                rule = proxy.add(Rule("PUT", HEAD, "lose_request", before=proxy.cut))
                await clients.entrust("undecided", tenant=site.tenant)
                await until(lambda: rule.is_spent, 20, what="the loss of the head write")
                await asyncio.sleep(1)  # time enough to acknowledge what it must not
                doomed.kill()
            with site.writer():
                await clients.await_entrusted()
            Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


ONCE = {"claim_type": "fact", "statement": "once"}
BLOB = bytes(40_000)
LARGE = {
    "kind": "binary",
    "title": "large",
    "media_type": "application/octet-stream",
    "content": {"type": "base64", "data": base64.b64encode(BLOB).decode()},
}


def test_an_attempt_delivered_again_after_the_store_changed_stays_what_it_was_decided(
    site: Site, tmp_path: Path
) -> None:
    """One attempt is refused, as its blob is missing, and one is applied; the acknowledgement of both is lost after the
    head write. Then others make the first possible and the second obsolete, and both are delivered again: at once,
    and much later, as by a redrive of a dead-letter queue."""

    async def run() -> None:
        queue = SqliteQueue(site.directory / "queue.sqlite3")
        async with site.clients() as clients, S3Store(site.s3) as store:
            with site.writer():
                await clients.write("before")
            refused, refused_body = command(site, "artifact.put", LARGE, key="large")
            applied, applied_body = command(site, "claim.assert", ONCE, key="once")
            with site.writer(crash_at="head_moved:3") as doomed:  # the claim of the epoch, its end, the commit
                for attempt, body in ((refused, refused_body), (applied, applied_body)):
                    await queue.send(OutgoingMessage(body, site.tenant, attempt.attempt_id))
                await doomed.crashed()
            await BlobStore(store, site.tenant).put(BLOB)
            with site.writer():
                await clients.write("after the redelivery")
                claim = (await clients.decided("claim.assert", ONCE, key="once"))["result"]
                retraction = {"claim_id": claim["claim_id"], "reason": "obsolete"}
                await clients.decided("claim.retract", retraction, key="retract")
                for attempt, body in ((refused, refused_body), (applied, applied_body)):
                    await queue.send(OutgoingMessage(body, site.tenant, f"redrive-{attempt.attempt_id}"))
                await clients.write("after the redrive")
                assert await state_of(clients, refused) == "refused"
                assert await state_of(clients, applied) == "applied"
        await queue.close()
        checker = Checker(site, tmp_path)
        checker.check(clients.acknowledged)
        db = checker.restored(checker.head())
        assert list(db.execute("SELECT count(*) FROM artifacts")) == [(0,)], "a refused attempt took effect later"
        once = list(db.execute("SELECT status FROM claims WHERE claim_id = ?", (claim["claim_id"],)))
        assert once == [("retracted",)]
        db.close()

    asyncio.run(run())


async def state_of(clients: Clients, command: Command) -> str:
    return (await clients.service.operation_status(command.tenant, command.attempt_id)).state


def command(site: Site, operation: str, payload: Mapping[str, Any], *, key: str) -> tuple[Command, str]:
    """A command and its message as an api would make them, without what an api does before it sends one."""
    request = make_request(operation, payload, key=key)
    made = new_command(site.tenant, request.call, history=0, clock_now=utc_now)
    return made, to_message(made, request.envelope).decode()
