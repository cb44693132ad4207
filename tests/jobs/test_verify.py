"""The verification of a tenant, from what the bucket holds: a real store, real change files, real backups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from faults.checker import Checker
from faults.site import Site, until
from memoree.assembly import job_site
from memoree.backup import record
from memoree.backup.retention import Retention, prune
from memoree.errors import Code, MemoreeError
from memoree.jobs.backup import create
from memoree.jobs.backup_site import list_all
from memoree.jobs.erase import erase_in_deployment
from memoree.jobs.replicated import JobSite
from memoree.jobs.verify import Verdict, _Verification, verify
from memoree.objects.s3 import S3Settings
from memoree.replication import layout
from memoree.replication.head import Head
from memoree.replication.ltx import parse_name
from memoree.writer.reign import Reign

from .kiln import elsewhere

pytestmark = pytest.mark.stack

QUICK_LEVELS = {
    "level_seconds": (2.0, 4.0, 8.0),
    "snapshot_interval_seconds": 1.0,
    "l0_retention_check_seconds": 0.5,
    "settle_after_idle_seconds": 600.0,
}


@dataclass(frozen=True, slots=True)
class Plant:
    """A tenant at rest that has an object of every kind; `sound` are all of them."""

    site: Site
    sound: Mapping[str, bytes]

    def key(self, kind: str) -> str:
        """Of an object of a kind, relative to the tenant."""
        named = {
            "head": lambda key: key == "head.json",
            "ledger": lambda key: key.startswith("epochs/"),
            "blob": lambda key: key.startswith("blobs/"),
            "erasure": lambda key: key.startswith("erasures/"),
            "record": lambda key: key.endswith("/backup.json"),
            "intent": lambda key: key.endswith("/intent.json"),
            "checkpoint": lambda key: key.endswith("/checkpoint.db.zst"),
            "manifest": lambda key: key.endswith("/manifest.jsonl.zst"),
            "raw change file": lambda key: "/0000/" in key,
            "compacted change file": lambda key: "/0001/" in key,
            "snapshot": lambda key: "/0009/" in key,
        }
        return max(key for key in self.sound if named[kind](key) and self.is_live(key))

    def is_live(self, key: str) -> bool:
        """Whether it is no change file of an earlier epoch, which nothing that is covered needs."""
        return not key.startswith("ltx/") or key.startswith(str(self.head.prefix))

    @property
    def head(self) -> Head:
        return Head.from_bytes(self.sound["head.json"])

    def verified(self, *, full: bool, damage: Mapping[str, bytes | None] | None = None) -> Verdict:
        """With some objects replaced, or gone where there is `None`; all is put back afterwards."""

        async def run(jobs: JobSite) -> Verdict:
            prefix = layout.tenant_prefix(self.site.tenant)
            for key, body in (damage or {}).items():
                await (jobs.store.delete(prefix + key) if body is None else jobs.store.put(prefix + key, body))
            try:
                return await verify(jobs.store, jobs.writer.replicator, self.site.tenant, jobs.scratch.path, full=full)
            finally:
                for key in damage or {}:
                    await jobs.store.put(prefix + key, self.sound[key])

        return on_site(self.site, run)


def on_site(site: Site, work: Callable[[JobSite], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with job_site(site.settings) as jobs:
            return await work(jobs)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory, seaweedfs: S3Settings) -> Plant:
    site = Site(tmp_path_factory.mktemp("plant"), seaweedfs, QUICK_LEVELS)
    checker = Checker(site, site.directory)

    def files_of(level: str) -> int:
        return sum(f"/{level}/" in key for key in checker.keys(checker.head()["prefix"]))

    def has_all_levels() -> bool:
        return all(map(files_of, ("0000", "0001", "0009")))

    async def fill() -> dict[str, bytes]:
        async with site.clients() as clients, job_site(site.settings) as jobs:
            with site.writer() as writer:
                secret = await clients.write("secret")
                await erase_in_deployment(jobs, site.tenant, [secret.claim_id], "it was one")
                await clients.write_cited("cited")
                await clients.write_disputed("disputed")
                await until(has_all_levels, 30, what="a file of every level")
                compacted = files_of("0001")
                await clients.write("last but one")
                await until(lambda: files_of("0001") > compacted, 30, what="a compaction of all but the last")
                await clients.write("last")
                writer.stop()
            await create(jobs.tenancy(site.tenant), jobs.scratch.new_subdirectory("backup"))
            prefix = layout.tenant_prefix(site.tenant)
            found = [await jobs.store.get(info.key) async for info in jobs.store.list(prefix)]
            return {each.info.key.removeprefix(prefix): each.body for each in found if each is not None}

    return Plant(site, asyncio.run(fill()))


@pytest.mark.parametrize("full", [False, True])
def test_a_sound_tenant_has_no_issue(plant: Plant, full: bool) -> None:
    verdict = plant.verified(full=full)
    assert verdict.issues == []
    assert (verdict.ok, verdict.commit_seq, verdict.batch) == (True, plant.head.commit_seq, plant.head.batch)
    assert (verdict.blobs, verdict.backups, verdict.unfinished_backups) == (1, 1, [])
    assert verdict.epochs >= 2
    assert verdict.change_files == (len(in_prefix(plant)) if full else 0)


# --- planted damage -------------------------------------------------------------------------------------------------

TOGETHER = (
    ("ledger", "blob", "checkpoint"),
    ("erasure", "compacted change file", "snapshot"),
    ("manifest", "intent", "raw change file"),
    ("head", "record"),
)
"""Kinds that can be damaged in one and the same verification, since none hides another."""
KINDS = tuple(kind for kinds in TOGETHER for kind in kinds)
HARMLESS = {("compacted change file", "deleted"), ("snapshot", "deleted")}
"""What they hold is in raw files too, as long as those are retained."""
NAMED_AS_UNFINISHED = {("record", "deleted")}
"""Nobody can tell what is left from a backup that was broken off."""


DAMAGES = ("deleted", "truncated", "flipped")


def damaged(body: bytes, how: str) -> bytes | None:
    middle = len(body) // 2
    return {
        "deleted": None,
        "truncated": body[:middle],
        "flipped": body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :],
    }[how]


@pytest.fixture(scope="module")
def verdicts(plant: Plant) -> dict[tuple[str, str], Verdict]:
    """Of every kind and damage."""
    found = {}
    for kinds in TOGETHER:
        for how in DAMAGES:
            keys = [plant.key(kind) for kind in kinds]
            verdict = plant.verified(full=True, damage={key: damaged(plant.sound[key], how) for key in keys})
            found |= {(kind, how): verdict for kind in kinds}
    return found


@pytest.mark.proves("operations-46")
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_damaged_object_is_named(
    plant: Plant, verdicts: dict[tuple[str, str], Verdict], kind: str, how: str
) -> None:
    key, verdict = plant.key(kind), verdicts[kind, how]
    name = key.rpartition("/")[2] if kind == "blob" else key
    told = [line for line in map(str, verdict.issues) if name in line or is_prefix_of(line, key)]
    if (kind, how) in HARMLESS:
        assert (told, verdict.commit_seq) == ([], plant.head.commit_seq)
    elif (kind, how) in NAMED_AS_UNFINISHED:
        assert verdict.unfinished_backups == [key.split("/")[1]]
    else:
        assert told, verdict.issues


def is_prefix_of(line: str, key: str) -> bool:
    """Of a change file that is gone, what is lost is told of its prefix."""
    prefix = key.rsplit("/", 2)[0]
    return line.startswith("ltx ") and f"/{prefix}/: no change file continues" in line


@pytest.mark.proves("operations-45", "operations-46")
def test_no_member_of_head_can_be_wrong_unnoticed_but_those_that_bind_nobody(plant: Plant) -> None:
    head = plant.head
    wrong: list[dict[str, Any]] = [
        {"history": 5},
        {"epoch": 1},
        {"txid": head.txid + 7},
        {"batch": head.batch + 1},
        {"prefix": another_prefix(str(head.prefix))},
        {"commit_seq": head.commit_seq - 1, "hlc": head.hlc + 1, "schema_version": 2, "integrity": "00" * 32},
    ]
    for members in wrong:
        verdict = plant.verified(full=False, damage={"head.json": replace(head, **members).to_bytes()})
        assert len(verdict.issues) >= len(members), (members, verdict.issues)
    bind_nobody = {"format", "write_id", "revision", "owner", "released_at", "updated_at"}
    assert {name for members in wrong for name in members} | bind_nobody == set(Head.__dataclass_fields__)


@pytest.mark.proves("operations-45")
def test_a_hole_among_the_change_files_is_told_with_its_place(plant: Plant) -> None:
    raw = sorted(key for key in in_prefix(plant) if "/0000/" in key)
    compacted = {key: None for key in in_prefix(plant) if "/0000/" not in key}
    verdict = plant.verified(full=False, damage={**compacted, raw[1]: None})
    (issue,) = [each for each in verdict.issues if each.kind == "ltx"]
    first = parse_name(raw[0])
    assert first is not None
    assert f"no change file continues TXID {first.max_txid}" in issue.detail


def test_a_lost_head_is_told_and_everything_else_still_checked(plant: Plant) -> None:
    record = plant.key("record")
    damage = {"head.json": None, record: plant.sound[record][:-2]}
    kinds = [issue.kind for issue in plant.verified(full=False, damage=damage).issues]
    assert kinds == ["head", "backup"]


@pytest.mark.proves("operations-45")
def test_a_sum_that_differs_between_head_database_and_backup_is_found(plant: Plant) -> None:
    wrong = replace(plant.head, integrity="ab" * 32).to_bytes()
    issues = plant.verified(full=False, damage={"head.json": wrong}).issues
    assert [(issue.kind, issue.entity) for issue in issues] == [("integrity_sum", "head")]


def test_a_tenant_without_objects_is_none(plant: Plant) -> None:
    with pytest.raises(MemoreeError) as refused:
        on_site(plant.site, lambda jobs: verify(jobs.store, jobs.writer.replicator, "nobody", jobs.scratch.path))
    assert refused.value.code is Code.NOT_FOUND


def another_prefix(prefix: str) -> str:
    """Of the same epoch, with another random end."""
    return prefix[:-2] + ("Y/" if prefix.endswith("Z/") else "Z/")


def in_prefix(plant: Plant) -> list[str]:
    return [key for key in plant.sound if key.startswith(str(plant.head.prefix))]


# --- what goes on meanwhile -----------------------------------------------------------------------------------------


@pytest.fixture
def busy(tmp_path: Path, seaweedfs: S3Settings) -> Site:
    return Site(tmp_path, seaweedfs)


@pytest.mark.proves("operations-45")
def test_a_writer_that_takes_over_while_the_ledger_is_read_leaves_no_hole(
    busy: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a ledger that is read before an epoch begins and a head that is read after."""

    async def scenario() -> None:
        with busy.writer() as writer:
            async with busy.clients() as clients, job_site(busy.settings) as jobs:
                await clients.write("before")
                writer.stop()
                ledger = _Verification._ledger

                async def ledger_then_takeover(self: _Verification) -> dict[int, Any]:
                    found = await ledger(self)
                    reign = await Reign.begin(busy.tenant, jobs.writer, unleased=True)
                    await reign.abandon()
                    return found

                monkeypatch.setattr(_Verification, "_ledger", ledger_then_takeover)
                verdict = await verify(jobs.store, jobs.writer.replicator, busy.tenant, jobs.scratch.path)
                assert verdict.issues == []

    asyncio.run(scenario())


@pytest.mark.proves("operations-45")
@pytest.mark.parametrize("step", ["checking every row", "verifying the backup"])
def test_what_is_erased_meanwhile_is_not_missed(busy: Site, step: str) -> None:
    """Given a copy that is restored before an erasure and blobs that are looked for after."""

    async def scenario() -> None:
        with busy.writer():
            async with busy.clients() as clients, job_site(busy.settings) as jobs:
                cited = await clients.write_cited("cited")
                await create(jobs.tenancy(busy.tenant), jobs.scratch.new_subdirectory("backup"))
                assert cited.citation is not None
                erased = [cited.citation.artifact_id]

                def erase_at(told: str) -> None:
                    if told.startswith(step):
                        elsewhere(
                            lambda: on_site(busy, lambda site: erase_in_deployment(site, busy.tenant, erased, "r"))
                        )

                verdict = await verify(
                    jobs.store, jobs.writer.replicator, busy.tenant, jobs.scratch.path, progress=erase_at
                )
                assert verdict.issues == []

    asyncio.run(scenario())


@pytest.mark.proves("operations-46")
@pytest.mark.parametrize("full", [False, True])
def test_a_backup_that_is_pruned_meanwhile_is_no_damaged_one(busy: Site, full: bool, monkeypatch: Any) -> None:
    async def scenario() -> None:
        with busy.writer():
            async with busy.clients() as clients, job_site(busy.settings) as jobs:
                await clients.write("first")
                await create(jobs.tenancy(busy.tenant), jobs.scratch.new_subdirectory("one"))
                await clients.write("second")
                await create(jobs.tenancy(busy.tenant), jobs.scratch.new_subdirectory("two"))
                listed = record.published

                async def listed_and_pruned(store: Any, tenant: str) -> list[str]:
                    found = await listed(store, tenant)
                    monkeypatch.setattr(record, "published", listed)
                    await prune(store, tenant, Retention(1, 0, 0))
                    return found

                monkeypatch.setattr(record, "published", listed_and_pruned)
                verdict = await verify(jobs.store, jobs.writer.replicator, busy.tenant, jobs.scratch.path, full=full)
                assert verdict.issues == []
                await clients.write("third")
                await create(jobs.tenancy(busy.tenant), jobs.scratch.new_subdirectory("three"))
                monkeypatch.setattr(record, "published", listed_and_pruned)
                told = await list_all(jobs, busy.tenant)
                assert told["unreadable"] == {} and len(told["backups"]) == 1

    asyncio.run(scenario())
