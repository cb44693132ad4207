"""Readers that look all the time, and a record of every head: what anybody was shown while faults happened (W3).

Each look is compared with a head read after it. Head only grows, so a state that a later head does not cover was not
covered when it was shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import apsw
import orjson

from faults.site import Site
from memoree.assembly import replicated_service
from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectMissing, ObjectStoreError
from memoree.objects.s3 import S3Store
from memoree.reader.service import ReplicatedService

LOOK_SECONDS = 0.05
HEAD_LOOK_SECONDS = 0.02

_STATE = """
    SELECT epoch, history, batch, commit_seq, hlc, hex(integrity),
        (SELECT count(*) FROM events WHERE operation <> 'store.restored'),
        (SELECT count(*) FROM claim_revisions) + (SELECT count(*) FROM artifact_revisions)
            + (SELECT count(*) FROM relations),
        (SELECT coalesce(max(commit_seq), 0) FROM events),
        (SELECT event_id FROM events ORDER BY commit_seq DESC LIMIT 1)
    FROM meta
"""


@dataclass(slots=True)
class Watch:
    """What was seen of one tenant. `shown` maps a commit number to the audit event that readers saw there."""

    tenant: str
    looks: int = 0
    shown: dict[int, str] = field(default_factory=dict)
    heads: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By revision."""
    _by_batch: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    _owners: dict[int, str] = field(default_factory=dict)

    def see_head(self, head: dict[str, Any]) -> None:
        """W2 and W4, as far as heads tell: one body per revision, one owner per epoch, nothing ever falls."""
        known = self.heads.setdefault(head["revision"], head)
        assert known["write_id"] == head["write_id"], f"W4: two heads of revision {head['revision']}"
        owner = self._owners.setdefault(head["epoch"], head["owner"])
        assert owner == head["owner"], f"W4: epoch {head['epoch']} belongs to {owner} and {head['owner']}"
        state = (head["commit_seq"], head["hlc"], head["integrity"].upper())
        known_state = self._by_batch.setdefault(head["batch"], state)
        assert known_state == state, f"W4: two states of batch {head['batch']}"
        before = max((number for number in self.heads if number < head["revision"]), default=None)
        if before is not None:
            last = self.heads[before]
            for counter in ("epoch", "batch", "commit_seq", "hlc", "history"):
                assert last[counter] <= head[counter], f"W2: {counter} of head went back"

    def see_state(self, state: tuple[Any, ...], head: dict[str, Any] | None, least_commit_seq: int) -> int:
        """W3: the state is whole, covered, and no older than what this reader showed before."""
        epoch, history, batch, commit_seq, hlc, integrity, events, rows, newest, event_id = state
        self.looks += 1
        assert (events, newest) == (rows, commit_seq), f"W3: a torn state at {commit_seq}: {events} events, {rows} rows"
        assert commit_seq >= least_commit_seq, f"W3: a reader went back from {least_commit_seq} to {commit_seq}"
        if commit_seq:
            assert head is not None and head["prefix"] is not None
            assert history <= head["history"], f"W3: history {history} is not head's"
            assert epoch <= int(head["prefix"][4:12]), f"W3: epoch {epoch} is not head's"
            assert (batch, commit_seq) <= (head["batch"], head["commit_seq"]), f"W3: batch {batch} is not covered"
            named = self._by_batch.get(batch, (commit_seq, hlc, integrity))
            assert named == (commit_seq, hlc, integrity), f"W3: batch {batch} is of another lineage"
            known = self.shown.setdefault(commit_seq, event_id)
            assert known == event_id, f"W3: two readers saw different events {commit_seq}"
        return int(commit_seq)


@asynccontextmanager
async def watching(site: Site, tenants: Sequence[str], *, readers: int = 2) -> AsyncIterator[dict[str, Watch]]:
    """Look at the tenants with readers of their own until the block ends; then at least one look of each must have
    been taken. What they find wrong is raised at the end of the block."""
    watches = {tenant: Watch(tenant) for tenant in tenants}
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(S3Store(site.s3))
        services = [
            await stack.enter_async_context(replicated_service(site.settings, authorization=False))
            for _ in range(readers)
        ]
        tasks = [asyncio.create_task(_record_heads(store, watch)) for watch in watches.values()]
        tasks += [
            asyncio.create_task(_look(store, service, watch, strong=bool(number % 2)))
            for number, service in enumerate(services)
            for watch in watches.values()
        ]
        try:
            yield watches
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for result in ended:
            if isinstance(result, Exception):
                raise result
        assert all(watch.looks for watch in watches.values()), "nobody ever looked"


async def _record_heads(store: S3Store, watch: Watch) -> None:
    while True:
        if (head := await _head(store, watch.tenant)) is not None:
            watch.see_head(head)
        await asyncio.sleep(HEAD_LOOK_SECONDS)


async def _look(store: S3Store, service: ReplicatedService, watch: Watch, *, strong: bool) -> None:
    least = 0
    while True:
        try:
            async with service._replicas.ready(watch.tenant, strong=strong) as replica:
                state = await replica.generation.read(service._environment.executor, _state)
        except MemoreeError as error:
            assert error.code is Code.INDEX_NOT_READY, error
        except ObjectStoreError:
            pass
        else:
            least = watch.see_state(state, await _head(store, watch.tenant), least)
        await asyncio.sleep(LOOK_SECONDS)


def _state(db: apsw.Connection) -> tuple[Any, ...]:
    return next(iter(db.execute(_STATE)))


async def _head(store: S3Store, tenant: str) -> dict[str, Any] | None:
    """Straight from the store; `None` while there is none. Waits while the store does not answer."""
    while True:
        try:
            found = await store.get(f"tenants/{tenant}/head.json")
        except ObjectMissing:
            return None
        except ObjectStoreError:
            await asyncio.sleep(HEAD_LOOK_SECONDS)
        else:
            assert found is not None
            document: dict[str, Any] = orjson.loads(found.body)
            return document
