"""Published backups of a tenant in an object store: what they are and how they are read back (design §7, §8).

A backup is four objects below `tenants/<tenant>/backups/<backup_id>/`, beside the blobs that its manifest names:
`intent.json` comes first and stays, `checkpoint.db.zst` is the database, `manifest.jsonl.zst` every blob it refers to,
and `backup.json`, create-only and last, makes a backup of them. Nothing read here is believed before it was proven.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from blake3 import blake3

from memoree import limits
from memoree.backup.drill import Drill
from memoree.backup.manifest import refs
from memoree.backup.packed import PackedFile, Unpacked, unpack
from memoree.errors import Code, MemoreeError, not_found
from memoree.ids import ULID_PATTERN, new_id, new_ulid
from memoree.objects import ObjectMissing, ObjectStore, ObjectStoreError, OutOfRange
from memoree.objects.audit import BlobRef
from memoree.objects.streaming import windows
from memoree.replication import layout

FORMAT = 1
INTENT_NAME = "intent.json"
CHECKPOINT_NAME = "checkpoint.db.zst"
MANIFEST_NAME = "manifest.jsonl.zst"
RECORD_NAME = "backup.json"
READERS_FOLDER = "readers/"

_BACKUP = re.compile(f"bkp_{ULID_PATTERN}")


class FaultyObject(MemoreeError):
    """`INTEGRITY_ERROR`: the object `key` of a backup cannot be believed, and `how` says why."""

    def __init__(self, key: str, how: str) -> None:
        super().__init__(Code.INTEGRITY_ERROR, f"{key} {how}", details={"key": key})
        self.key = key
        self.how = how


@dataclass(frozen=True, slots=True)
class Manifest(PackedFile):
    """`blobs` lines of JSON, `{"digest": 64 hex digits, "size": bytes}`, in ascending order of digests; the blobs have
    `bytes` bytes together."""

    blobs: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BackupRecord:
    """The body of backup.json: the state of `tenant` at `commit_seq`, and what proves it.

    `integrity` is the integrity sum in hex, `began_at` and `created_at` are in stored form by the clock of the job,
    `drill` is what the snapshot answered that was copied, `program` what made the backup.
    """

    backup_id: str
    tenant: str
    commit_seq: int
    batch: int
    epoch: int
    history: int
    hlc: int
    schema_version: int
    integrity: str
    began_at: str
    created_at: str
    checkpoint: PackedFile
    manifest: Manifest
    drill: Drill
    program: str
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """With a `digest` of all other members: the only object of a backup that nothing else vouches for."""
        document = asdict(self)
        return orjson.dumps({**document, "digest": _digest(document)}, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_bytes(cls, body: bytes, key: str) -> BackupRecord:
        """Raises `INTEGRITY_ERROR` for a damaged record and `CONFIG_ERROR` for one of a later format."""
        try:
            document = orjson.loads(body)
            digest = document.pop("digest")
            if digest != _digest(document):
                raise FaultyObject(key, "is damaged: its members do not add up to its digest")
            if document["format"] > FORMAT:
                raise MemoreeError(
                    Code.CONFIG_ERROR, f"{key} has format {document['format']}; upgrade this program to read it"
                )
            return cls(
                **{
                    **document,
                    "checkpoint": PackedFile(**document["checkpoint"]),
                    "manifest": Manifest(**document["manifest"]),
                    "drill": Drill(**document["drill"]),
                }
            )
        except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
            raise FaultyObject(key, f"is damaged: {error}") from error

    @property
    def intent(self) -> Intent:
        return Intent(self.backup_id, self.tenant, self.began_at, self.program)

    def key_of(self, name: str) -> str:
        return layout.backup_key(self.tenant, self.backup_id, name)


@dataclass(frozen=True, slots=True)
class Intent:
    """The body of intent.json."""

    backup_id: str
    tenant: str
    began_at: str
    program: str
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        return orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)


@dataclass(frozen=True, slots=True)
class FoundIntent:
    """`age` is by the store's clock. One that is not `published` protects everything that its backup may refer to, and
    is somebody's run as long as it is young."""

    backup_id: str
    age: timedelta
    published: bool


def new_backup_id() -> str:
    return new_id("bkp")


async def records(store: ObjectStore, tenant: str) -> list[BackupRecord]:
    """Every published backup, oldest first. Raises `StoreUnavailable`, and `INTEGRITY_ERROR` or `CONFIG_ERROR` for one
    that cannot be read: what it holds is unknown, so nobody may delete anything that it might."""
    found = []
    for backup_id in await published(store, tenant):
        with suppress(ObjectMissing):  # pruned since it was listed
            found.append(await read(store, tenant, backup_id))
    return sorted(found, key=age_order)


def age_order(record: BackupRecord) -> tuple[str, str]:
    """Sorts the oldest first."""
    return record.created_at, record.backup_id


async def published(store: ObjectStore, tenant: str) -> list[str]:
    """The ids of all backups that have a record, whatever is in it."""
    return [backup_id for backup_id, names in (await _objects(store, tenant)).items() if RECORD_NAME in names]


async def is_begun(store: ObjectStore, tenant: str, backup_id: str) -> bool:
    """Whether any object of such a backup is there."""
    if _BACKUP.fullmatch(backup_id) is None:
        return False
    async for _ in store.list(layout.backup_key(tenant, backup_id, "")):
        return True
    return False


async def find(store: ObjectStore, tenant: str, backup_id: str) -> BackupRecord:
    """Raises `NOT_FOUND`, and as `records` for one that cannot be read."""
    if _BACKUP.fullmatch(backup_id) is None:
        not_found("backup", backup_id)
    try:
        return await read(store, tenant, backup_id)
    except ObjectMissing:
        not_found("backup", backup_id)


async def read(store: ObjectStore, tenant: str, backup_id: str) -> BackupRecord:
    """Raises `ObjectMissing`, and as `records` for one that cannot be read."""
    key = layout.backup_key(tenant, backup_id, RECORD_NAME)
    stored = await store.get(key)
    assert stored is not None, "a GET without a condition always has a body"
    record = BackupRecord.from_bytes(stored.body, key)
    if (record.tenant, record.backup_id) != (tenant, backup_id):
        raise FaultyObject(key, f"is the record of backup {record.backup_id} of {record.tenant}")
    return record


async def intents(store: ObjectStore, tenant: str) -> list[FoundIntent]:
    """Every backup that was begun, by id. One that is published keeps its intent: were it removed, a reader of the list
    could come past both at the wrong moments and see neither. Raises `StoreUnavailable`."""
    found = []
    for backup_id, names in (await _objects(store, tenant)).items():
        if INTENT_NAME in names:
            with suppress(ObjectMissing):
                stored = await store.get(layout.backup_key(tenant, backup_id, INTENT_NAME))
                assert stored is not None, "a GET without a condition always has a body"
                age = stored.date - stored.info.last_modified
                found.append(FoundIntent(backup_id, age, RECORD_NAME in names))
    return found


async def fetch_checkpoint(store: ObjectStore, record: BackupRecord, path: Path) -> None:
    """The database, proven, in the new file `path`: readable by this user only. Needs room beside it for the packed
    file too, and a few megabytes of memory. Raises `INTEGRITY_ERROR` naming the object that is at fault, and
    `StoreUnavailable`; then there is no file."""
    await _fetch(store, record, record.checkpoint, path)


async def fetch_manifest(store: ObjectStore, record: BackupRecord, path: Path) -> None:
    """The lines of the manifest, proven, in the new file `path` (see `memoree.backup.manifest`). As
    `fetch_checkpoint`."""
    await _fetch(store, record, record.manifest, path)


async def manifest_refs(store: ObjectStore, record: BackupRecord) -> AsyncGenerator[BlobRef, None]:
    """Every blob of the backup, in ascending order of digests; the manifest is proven before the first comes, and lies
    in a temporary file. Close it (`aclosing`) when leaving early. Raises as `fetch_checkpoint`."""
    with TemporaryDirectory(prefix="memoree-") as directory:
        path = Path(directory) / "manifest.jsonl"
        await fetch_manifest(store, record, path)
        for ref in refs(path):
            yield ref


@asynccontextmanager
async def in_use(store: ObjectStore, record: BackupRecord) -> AsyncIterator[None]:
    """Keeps the backup from being pruned, for a day at most. Raises `NOT_FOUND` when it was pruned just now."""
    mark = record.key_of(f"{READERS_FOLDER}{new_ulid()}")
    await store.put(mark, b"{}")
    try:
        await find(store, record.tenant, record.backup_id)
        yield
    finally:
        with suppress(ObjectStoreError):  # it expires by itself
            await store.delete(mark)


async def _fetch(store: ObjectStore, record: BackupRecord, packed: PackedFile, path: Path) -> None:
    key = record.key_of(packed.name)
    with TemporaryDirectory(prefix="fetching-", dir=path.parent) as directory:
        stored = Path(directory) / packed.name
        await _download(store, key, packed.stored_size, stored)
        try:
            await asyncio.to_thread(unpack, stored, packed, path)
        except Unpacked as error:
            raise FaultyObject(key, f"is damaged: {error}") from error


async def _download(store: ObjectStore, key: str, size: int, path: Path) -> None:
    try:
        with path.open("xb") as file:
            async for window in windows(store, key, 0, size, window_bytes=limits.BACKUP_WINDOW_BYTES):
                if window.object_size != size:
                    raise FaultyObject(key, f"is damaged: it has {window.object_size} bytes where {size} were recorded")
                await asyncio.to_thread(file.write, window.body)
    except ObjectMissing as error:
        raise FaultyObject(key, "is missing") from error
    except OutOfRange as error:
        raise FaultyObject(key, f"is damaged: it is shorter than the {size} bytes that were recorded") from error


async def _objects(store: ObjectStore, tenant: str) -> dict[str, set[str]]:
    """Backup id → the names of its objects."""
    prefix = layout.backups_prefix(tenant)
    found: dict[str, set[str]] = {}
    async for info in store.list(prefix):
        backup_id, _, name = info.key.removeprefix(prefix).partition("/")
        found.setdefault(backup_id, set()).add(name)
    return found


def _digest(document: dict[str, Any]) -> str:
    return blake3(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)).hexdigest()
