"""The writer as a function, on a real store: between two events nothing of it is trusted."""

from __future__ import annotations

import asyncio
import copy
import shutil

import pytest
from functions_support import Remaining, Site, fact

from memoree.database.connection import open_writer
from memoree.errors import MemoreeError
from memoree.replication import layout
from memoree.serverless.writer import WriterFunction, WriterSite
from memoree.writer.reign import DATABASE_NAME, Reign
from memoree.writer.tenant import TenantActor

pytestmark = pytest.mark.stack

Containers = list[WriterFunction]


@pytest.mark.proves("operations-64")
def test_what_an_event_brings_is_applied_and_no_lease_is_left(site: Site, containers: Containers) -> None:
    writer, _ = containers
    site.enqueue(fact("one"), fact("two"))
    assert site.deliver(writer) == []

    head = site.head()
    assert (head.commit_seq, head.epoch) == (2, 1)
    assert head.released_at is not None


@pytest.mark.proves("operations-64")
def test_a_warm_container_continues_its_epoch(site: Site, containers: Containers) -> None:
    writer, _ = containers
    for number in range(3):
        site.enqueue(fact(f"fact {number}"))
        assert site.deliver(writer) == []
    head = site.head()
    assert (head.commit_seq, head.epoch) == (3, 1)
    assert head.released_at is not None


@pytest.mark.proves("operations-64")
def test_a_container_that_was_frozen_while_another_wrote_begins_a_new_epoch(site: Site, containers: Containers) -> None:
    frozen, other = containers
    for number, writer in enumerate([frozen, other, frozen], start=1):
        site.enqueue(fact(f"fact {number}"))
        assert site.deliver(writer) == []
        head = site.head()
        assert (head.commit_seq, head.epoch) == (number, number)


@pytest.mark.proves("operations-64")
def test_of_two_containers_thawed_from_one_state_the_second_loses(site: Site, containers: Containers) -> None:
    writer, clone = containers
    site.enqueue(fact("before"))
    site.deliver(writer)
    _thaw_a_clone(site, writer, clone)

    site.enqueue(fact("by the first"))
    assert site.deliver(writer) == []
    assert (site.head().epoch, site.head().commit_seq) == (1, 2)
    site.enqueue(fact("by the clone"))
    assert site.deliver(clone) == []

    assert (site.head().epoch, site.head().commit_seq) == (2, 3), "the clone may not go on where it was cloned"


@pytest.mark.proves("operations-63")
def test_a_tenant_that_cannot_be_written_holds_up_no_other_one(site: Site, containers: Containers) -> None:
    writer, _ = containers
    damaged = f"{site.tenant}-damaged"
    site.on_store(lambda store: store.put(layout.epoch_ledger_key(damaged, 1), b"{}"))  # and no head
    site.enqueue(fact("lost"), fact("lost too"), tenant=damaged)
    site.enqueue(fact("kept"))

    kept = site.deliver(writer)

    assert [message.group for message in kept] == [damaged, damaged]
    assert site.head().commit_seq == 1
    site.discard(kept)


@pytest.mark.proves("operations-64")
def test_an_event_without_time_left_applies_nothing_and_keeps_everything(site: Site, containers: Containers) -> None:
    writer, _ = containers
    site.enqueue(fact("one"))
    site.deliver(writer)
    site.enqueue(fact("two"))
    kept = site.deliver(writer, seconds=0.0)
    assert [message.group for message in kept] == [site.tenant]
    assert site.head().commit_seq == 1
    assert site.deliver(writer) == [], "given back, it is delivered again at once"
    assert site.head().commit_seq == 2


def test_the_scheduled_migration_is_the_writers_too(site: Site, containers: Containers) -> None:
    writer, _ = containers
    assert writer({"job": "migrate"}, Remaining()) == {"job": "migrate", "ok": True}
    with pytest.raises(MemoreeError, match="no job"):
        writer({"job": "tidy"}, Remaining())


def _thaw_a_clone(site: Site, original: WriterFunction, clone: WriterFunction) -> None:
    """Give one container the state of another, settled one: its database file, what it knows of head, its epoch."""

    async def reign_of(opened: WriterSite) -> Reign:
        reign = opened.worker._actors[site.tenant]._reign
        assert reign is not None and reign.settled
        return reign

    held = original.container.run(reign_of)

    async def adopt(opened: WriterSite) -> None:
        worker = opened.worker
        twin = copy.copy(held)
        twin._environment = worker._environment
        twin._loop, twin._head_lock = asyncio.get_running_loop(), asyncio.Lock()
        twin._head_file = type(held._head_file)(worker._environment.store, layout.tenant_prefix(site.tenant))
        twin._directory = worker._environment.directory.new_subdirectory("clone")
        twin._database = twin._directory / DATABASE_NAME
        shutil.copytree(held._directory, twin._directory, dirs_exist_ok=True)
        twin._db = open_writer(twin._database, replicated=True)
        twin._litestream = worker._environment.replicator.child(
            twin._database, layout.tenant_prefix(site.tenant) + twin.prefix
        )
        actor = TenantActor(site.tenant, worker._environment, worker._queue, unleased=False)
        actor._reign = twin
        worker._actors[site.tenant] = actor

    clone.container.run(adopt)
