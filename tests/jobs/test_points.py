"""Points in time of a tenant whose reigns ended in every way there is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.site import Site
from memoree.clock import parse_timestamp
from memoree.errors import Code, MemoreeError
from memoree.jobs.restore import Options, restorable_points, restore_point
from memoree.replication.lineage import UpToCommit, UpToTime

from .test_restore import stage

pytestmark = pytest.mark.stack

REPLACE = Options(replace=True)


@pytest.mark.proves("operations-31")
@pytest.mark.proves("operations-32")
def test_every_commit_can_be_gone_back_to_across_reigns(site: Site, tmp_path: Path) -> None:
    """The second reign ends with a commit that was not covered, the third before it began, the others in order."""

    async def run() -> None:
        async with stage(site) as on:
            with site.writer() as first:
                for name in ("one", "two", "three"):
                    await on.clients.write(name)
                first.stop()
            await on.clients.entrust("four", tenant=on.tenant)
            with site.writer(crash_at="synced") as second:
                await second.crashed()
            with site.writer(crash_at="takeover_synced") as third:
                await third.crashed()
            with site.writer() as fourth:
                await on.clients.write("five")
                await on.clients.write("six")
                fourth.stop()

            listed = await restorable_points(on.jobs, on.tenant)
            assert [(each["epoch"], each["kind"]) for each in listed["reigns"]] == [
                (4, "takeover"),
                (2, "takeover"),
                (1, "birth"),
            ]
            assert len(listed["points"]) == sum(each["points"] for each in listed["reigns"]) >= 6
            assert listed["points_left_out"] == 0

            for commit in (2, 4, 5):
                target = f"{on.tenant}-{commit}"
                restored = await restore_point(on.jobs, on.tenant, UpToCommit(commit), target)
                assert restored.asked == {"commit": commit}
                assert (restored.got["commit_seq"], restored.commit_seq) == (commit, commit + 1)
                assert restored.got["epoch"] == (1 if commit < 4 else 4)
                found = await on.ask("search", {"query": "statement", "limit": 10}, target)
                assert len(found["result"]["hits"]) == commit
            with pytest.raises(MemoreeError, match="commit -1") as refused:
                await restore_point(on.jobs, on.tenant, UpToCommit(-1), f"{on.tenant}-never")
            assert refused.value.code is Code.NOT_FOUND

    asyncio.run(run())


@pytest.mark.proves("operations-31")
def test_a_mistake_is_undone_by_going_back_in_place_and_a_wrong_restore_too(site: Site, tmp_path: Path) -> None:
    async def run() -> None:
        async with stage(site) as on:
            with site.writer():
                await on.clients.write("wanted")
                wanted = await on.clients.write_cited("wanted with a blob")
                before = on.jobs.writer.clock().isoformat()
                mistake = await on.clients.write("mistake")

                restored = await restore_point(
                    on.jobs, on.tenant, UpToTime(parse_timestamp(before)), on.tenant, REPLACE
                )
                assert restored.got["commit_seq"] == wanted.commit_seq
                assert restored.got["time"] < before.replace("+00:00", "Z")
                assert (restored.history, restored.replaced_commit_seq) == (1, mistake.commit_seq)
                assert await on.statement(mistake.claim_id) is None
                assert await on.statement(wanted.claim_id) == wanted.statement

                restored = await restore_point(on.jobs, on.tenant, UpToCommit(mistake.commit_seq), on.tenant, REPLACE)
                assert (restored.got["commit_seq"], restored.history) == (mistake.commit_seq, 2)
                assert await on.statement(mistake.claim_id) == mistake.statement
                following = await on.clients.write("following")
                assert following.commit_seq == restored.commit_seq + 1
                assert await on.verified() == []
            Checker(site, tmp_path).check(on.clients.acknowledged)

    asyncio.run(run())
