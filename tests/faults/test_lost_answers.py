"""The store did what it was asked, or did not, and the writer cannot know: every such doubt is resolved by looking."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.proxy import Rule, store_proxy
from faults.site import Acknowledged, Clients, Site, make_request, until
from faults.watch import watching
from memoree.clock import utc_now
from memoree.command import Command, to_message
from memoree.objects.blobs import BlobStore
from memoree.objects.s3 import S3Store
from memoree.queue import OutgoingMessage
from memoree.queue.sqlite import SqliteQueue
from memoree.service import Request, new_command

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


@pytest.mark.proves("machine-60")
def test_an_attempt_delivered_again_after_the_store_changed_stays_what_it_was_decided(
    site: Site, tmp_path: Path
) -> None:
    """The acknowledgement is lost after the head write; before and after the redelivery, and once more much later as a
    redrive of a dead-letter queue would do, other clients make the refused attempt possible and the applied one
    obsolete."""

    async def run() -> None:
        async with site.clients() as clients, S3Store(site.s3) as store:
            queue = SqliteQueue(site.directory / "queue.sqlite3")
            with site.writer():
                claim = await clients.write("will be retracted")
            blob = b"\0" * 40_000
            refused, refused_body = command(site, "artifact.put", put_payload(blob), key="without its blob")
            applied, applied_body = command(
                site, "claim.assert", {"claim_type": "fact", "statement": "once"}, key="once"
            )
            with site.writer(crash_at="head_moved:3") as doomed:  # claim, takeover's end, the commit
                await queue.send(OutgoingMessage(refused_body, site.tenant, refused.attempt_id))
                await queue.send(OutgoingMessage(applied_body, site.tenant, applied.attempt_id))
                await doomed.crashed()
            await BlobStore(store, site.tenant).put(blob)
            with site.writer():
                await clients.write("after the redelivery")
                once = await clients.decided("claim.assert", {"claim_type": "fact", "statement": "once"}, key="once")
                retracted = {"claim_id": once["result"]["claim_id"], "reason": "wrong"}
                await clients.decided("claim.retract", retracted, key="retract")
                for body, name in ((refused_body, "redrive-1"), (applied_body, "redrive-2")):
                    await queue.send(OutgoingMessage(body, site.tenant, name))
                await clients.write("after the redrive")
                await stays(clients, refused, "refused")
                await stays(clients, applied, "applied")
            await queue.close()
            clients.acknowledged.append(
                Acknowledged(site.tenant, "once", "once", once["result"]["claim_id"], once["commit_seq"])
            )
            checker = Checker(site, tmp_path)
            checker.check(clients.acknowledged)
            db = checker.restored(checker.head())
            assert list(db.execute("SELECT count(*) FROM artifacts")) == [(0,)], "a refused attempt took effect later"
            status = list(db.execute("SELECT status FROM claims WHERE claim_id = ?", (once["result"]["claim_id"],)))
            assert status == [("retracted",)]
            assert claim.commit_seq == 1
            db.close()

    asyncio.run(run())


async def stays(clients: Clients, command: Command, state: str) -> None:
    status = await clients.service.operation_status(command.tenant, command.attempt_id)
    assert status.state == state, status


def command(site: Site, operation: str, payload: dict[str, object], *, key: str) -> tuple[Command, str]:
    """A command as an api would make it, without what an api does before it sends it."""
    request: Request = make_request(operation, payload, key=key)
    made = new_command(site.tenant, request.call, history=0, clock_now=utc_now)
    return made, to_message(made, request.envelope).decode()


def put_payload(blob: bytes) -> dict[str, object]:
    content = {"type": "base64", "data": base64.b64encode(blob).decode()}
    return {
        "kind": "binary",
        "title": "large",
        "media_type": "application/octet-stream",
        "content": content,
    }
