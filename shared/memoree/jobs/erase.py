"""Erasing artifacts and claims for good, and saying truly where they may still be (design §8, `docs/erasure.md`).

The writer's commit is the erasure. What comes after it (the record for restores, the blobs, rewriting the database) may
be broken off at any point, and the same command again does all of it that is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apsw
import orjson
from blake3 import blake3

from memoree import clock, limits
from memoree.crashpoints import reach
from memoree.data_directory import INGEST_QUEUE_NAME
from memoree.database import artifacts, claims, condemned
from memoree.database.artifacts import Artifact
from memoree.database.claims import Claim
from memoree.envelope import parse
from memoree.erasures import (
    GONE,
    IN_THE_COMMIT,
    Erasure,
    Line,
    Retention,
    record_missing,
    recorded,
    retained_until,
    told_by,
)
from memoree.errors import Code, MemoreeError, erased, not_found
from memoree.jobs import gc, local_gc
from memoree.jobs.embedded import EmbeddedTenancy
from memoree.jobs.replicated import JobSite
from memoree.jobs.retained import backups_until, blobs_until
from memoree.jobs.tenancy import Tenancy
from memoree.objects import ObjectMissing, ObjectStore
from memoree.objects.blobs import blob_key
from memoree.objects.filesystem import TEMPORARY_AGE_SECONDS_MAX
from memoree.operations.erasure import ARTIFACT_PREFIX, OPERATION, StoreErase
from memoree.queue import QueueError
from memoree.queue.sqlite_store import scrub
from memoree.replication import layout
from memoree.replication.head import HeadLost
from memoree.replication.lineage import ledger_entry
from memoree.settings import StackSettings
from memoree.writer.reign import Reign

TRIES_MAX = 5
"""Each of which a restore may undo that was under way."""
Json = dict[str, Any]


async def preview(tenancy: Tenancy, entities: Sequence[str]) -> Json:
    """What an erasure would be about. Raises what the erasure would, and `NOT_FOUND` for what is erased already."""
    wanted = parse(StoreErase, {"entities": list(dict.fromkeys(entities)), "reason": "to look"}, "input")

    def found(db: apsw.Connection) -> list[Json]:
        return [_described(db, entity_id) for entity_id in wanted.entities]

    described, _ = await tenancy.snapshot(found)
    return {"dry_run": True, "entities": described}


async def erase_in_directory(tenancy: EmbeddedTenancy, entities: Sequence[str], reason: str) -> Json:
    """Erase, and return the receipt. Raises as `Tenancy.submit`, and `TRANSPORT_ERROR` while somebody reads an earlier
    state: then what is left is done by the next run."""
    result = await _committed(tenancy, entities, reason, names_blobs=False)
    await local_gc.collect(tenancy)
    at_work = await asyncio.to_thread(tenancy.service.scrub)
    reach("erasure_scrubbed")
    now = tenancy.clock()
    ingest_queue = tenancy.service.data_dir / INGEST_QUEUE_NAME
    if has_queue := ingest_queue.exists():
        await _scrub_queue(ingest_queue)
    collected_every = timedelta(seconds=limits.DIRECTORY_COLLECTED_EVERY_SECONDS)
    restored = now + timedelta(seconds=limits.RESTORE_DIRECTORY_SECONDS_MAX) + collected_every
    written = now + timedelta(seconds=TEMPORARY_AGE_SECONDS_MAX) + collected_every
    in_copies = retained_until(restored) if at_work.restores else GONE
    return _receipt(
        result,
        {
            **dict.fromkeys(IN_THE_COMMIT, in_copies),
            "blobs": retained_until(max(restored, written)) if any(at_work) else await _blobs_line(tenancy, now),
            **await _leftovers(tenancy.store, tenancy.tenant, collected_every),
            "queue": retained_until(now + timedelta(seconds=limits.QUEUE_SECONDS_MAX)) if has_queue else GONE,
            **dict.fromkeys(("replicas", "ltx_history", "backups", "second_bucket"), GONE),
        },
    )


async def erase_in_deployment(site: JobSite, tenant: str, entities: Sequence[str], reason: str) -> Json:
    """As `erase_in_directory`, of a tenant of a deployment. Its writer loses its reign to this job, which hands the
    tenant back at once: the prefix of a new epoch is the only one that holds nothing of what was."""
    tenancy = site.tenancy(tenant)
    result, known, began = await _erased_for_good(site, tenancy, entities, reason)
    for queue in _queue_files(site.settings):
        await _scrub_queue(queue)
    reach("erasure_scrubbed")
    now = site.writer.clock()
    retention = Retention.of(site.settings)
    pruned_every = timedelta(seconds=retention.backed_up_every)
    kept_until = await blobs_until(site, tenant, known, now)
    return _receipt(
        result,
        {
            **dict.fromkeys(IN_THE_COMMIT, GONE),
            "blobs": GONE if kept_until is None else retained_until(kept_until),
            **await _leftovers(site.store, tenant, timedelta(seconds=retention.collected_every)),
            **retention.lines(now, began=began),
            "backups": await _backups_line([site.store], tenant, known, now, pruned_every),
            "second_bucket": (
                GONE
                if site.second is None
                else await _backups_line([site.store, site.second], tenant, known, now, pruned_every)
            ),
        },
    )


async def _erased_for_good(
    site: JobSite, tenancy: Tenancy, entities: Sequence[str], reason: str
) -> tuple[Json, list[Erasure], datetime]:
    """The result, every erasure on record, and when the epoch began that holds nothing of it. A restore that was under
    way may have undone the commit before it was on record."""
    left = entities
    for _ in range(TRIES_MAX):
        result = await _committed(tenancy, left, reason, names_blobs=True)
        known = await recorded(site.store, tenancy.tenant)
        if site.second is not None:
            await record_missing(site.second, tenancy.tenant, known)
        await gc.collect_erased(tenancy)
        began = await _renewed(site, tenancy.tenant)
        if not (left := await _undone(tenancy, left)):
            return result, known, began
    raise MemoreeError(Code.TRANSPORT_ERROR, "restores undid it every time; the same command again finishes it")


async def _undone(tenancy: Tenancy, entities: Sequence[str]) -> list[str]:
    """Which of the entities the present holds. Asked after a reign that began with the record written: a restore that
    claimed the tenant before has either been covered by then, and is seen, or has lost it; one that claims it later
    reads the record."""

    def held(db: apsw.Connection) -> list[str]:
        found = {entity_id: _found(db, entity_id) for entity_id in entities}
        return [entity_id for entity_id, entity in found.items() if entity is not None and entity.erasure_row is None]

    left, _ = await tenancy.snapshot(held)
    return left


async def _committed(tenancy: Tenancy, entities: Sequence[str], reason: str, *, names_blobs: bool) -> Json:
    """The result of the commit, with its record written; `names_blobs` where backups may still refer to some. The same
    entities and reason are the same command."""
    wanted = {"entities": sorted(set(entities)), "reason": reason}
    key = f"erase_{blake3(orjson.dumps(wanted, option=orjson.OPT_SORT_KEYS)).hexdigest()}"
    result = await tenancy.submit(OPERATION, wanted, key=key)
    reach("erasure_committed")
    await _record_all(tenancy, result, names_blobs=names_blobs)
    reach("erasure_recorded")
    return dict(result)


async def _record_all(tenancy: Tenancy, result: Mapping[str, Any], *, names_blobs: bool) -> None:
    """Also what an earlier run erased and did not live to record, and what a restore has undone since the commit."""
    told, _ = await tenancy.snapshot(partial(told_by, with_blobs=names_blobs))
    erasure_id = result.get("erasure_id")
    if erasure_id is not None and all(each.erasure_id != erasure_id for each in told):
        at = clock.stored(tenancy.clock())
        told.append(Erasure(erasure_id, at, result["commit_seq"], tuple(result["entities"]), ()))
    await record_missing(tenancy.store, tenancy.tenant, told)


def _found(db: apsw.Connection, entity_id: str) -> Artifact | Claim | None:
    if entity_id.startswith(ARTIFACT_PREFIX):
        return artifacts.find(db, entity_id)
    return claims.find(db, entity_id)


def _described(db: apsw.Connection, entity_id: str) -> Json:
    kind = "artifact" if entity_id.startswith(ARTIFACT_PREFIX) else "claim"
    entity = _found(db, entity_id)
    if entity is None:
        not_found(kind, entity_id)
    if entity.erasure_row is not None:
        erased(kind, entity_id)
    return {"id": entity_id, "type": kind, "status": entity.status, "revisions": entity.revision_count}


def _receipt(result: Mapping[str, Any], lines: Mapping[str, Line]) -> Json:
    return {**result, "stores": dict(lines)}


async def _renewed(site: JobSite, tenant: str) -> datetime:
    """When an epoch began whose prefix holds nothing of what was erased: a reign rewrites a database that needs it."""
    reign = await _begun(site, tenant)
    try:
        with suppress(HeadLost):  # head has covered it, and somebody went on from there
            await reign.settle()
    finally:
        await reign.abandon()
    entry = await ledger_entry(site.store, tenant, reign.head.epoch)
    assert entry is not None, "a reign begins with its entry"
    return clock.from_stored(entry.at)


def _queue_files(settings: StackSettings) -> list[Path]:
    """Of the queues that are files: an SQS one keeps nothing that was removed from it."""
    urls = [urlsplit(url) for url in (settings.queue_url, settings.ingest_queue_url) if url is not None]
    return [path for url in urls if url.scheme == "sqlite" and (path := Path(url.path)).exists()]


async def _scrub_queue(path: Path) -> None:
    try:
        await asyncio.to_thread(scrub, path)
    except QueueError as error:
        raise MemoreeError(Code.TRANSPORT_ERROR, f"{error}; the same command again finishes it") from error


async def _begun(site: JobSite, tenant: str) -> Reign:
    for _ in range(limits.JOB_CLAIM_TRIES_MAX):
        with suppress(HeadLost):
            return await Reign.begin(tenant, site.writer, unleased=True)
    raise MemoreeError(
        Code.TRANSPORT_ERROR,
        "the tenant's writer was faster every time; what is left is done by the same command again",
        retry_after_seconds=1.0,
    )


async def _blobs_line(tenancy: Tenancy, now: datetime) -> Line:
    """A backup that is under way keeps every blob until it is published or given up."""
    rows, _ = await tenancy.snapshot(lambda db: [row for row in condemned.rows(db) if condemned.is_erased(db, row)])
    for row in rows:
        with suppress(ObjectMissing):
            await tenancy.store.head(blob_key(tenancy.tenant, row.digest.hex()))
            return retained_until(now + timedelta(seconds=limits.BACKUP_INTENT_REMOVAL_SECONDS))
    return GONE


async def _leftovers(store: ObjectStore, tenant: str, removed_every: timedelta) -> dict[str, Line]:
    """What commands, uploads and answers left that nobody lived to remove: told by age, since nobody knows what it is
    of. `memoree gc` removes it."""
    prefix = layout.tenant_prefix(tenant)
    commands = timedelta(seconds=limits.LEFTOVERS_SECONDS_MIN) + removed_every
    uploads = timedelta(seconds=limits.UPLOAD_REMOVAL_SECONDS + limits.UPLOAD_SWEEP_SECONDS) + removed_every
    return {
        "parked_commands": await _until(store, f"{prefix}commands/", commands),
        "answers": await _until(store, f"{prefix}answers/", commands),
        "uploads": await _until(store, layout.uploads_prefix(tenant), uploads),
    }


async def _until(store: ObjectStore, prefix: str, lifetime: timedelta) -> Line:
    newest = max([info.last_modified async for info in store.list(prefix)], default=None)
    return GONE if newest is None else retained_until(newest + lifetime)


async def _backups_line(
    stores: Sequence[ObjectStore], tenant: str, known: Sequence[Erasure], now: datetime, pruned_every: timedelta
) -> Line:
    ends = await backups_until(stores, tenant, known, now)
    return {backup_id: retained_until(end + pruned_every) for backup_id, end in ends.items()} or GONE
