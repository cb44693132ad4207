"""`memoree.tenants.Tenants` over a replicated deployment.

Quotas and births go through the queue: the writer alone makes them. Only a deletion needs rights of its own on the
buckets, and is left to processes that were given them.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

import orjson

from memoree import clock
from memoree.backup import record
from memoree.database import quota
from memoree.errors import Code, MemoreeError, not_found
from memoree.ids import new_ulid
from memoree.jobs.tenancy import request_of
from memoree.jobs.tenant_deletion import DeletionSite, delete_tenant
from memoree.objects import ObjectMissing, ObjectStore, PreconditionFailed
from memoree.objects.blobs import check_tenant
from memoree.operations.quota import CREATE, QUOTA
from memoree.reader.service import ReplicatedService
from memoree.replication import layout
from memoree.replication.head import HeadFile, HeadReading, head_missing
from memoree.tenants import CONFIRMATION_SECONDS_MAX, NotHere

CONFIRMATION_BYTES = 16

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReplicatedTenants:
    """`deletion` is there where tenants may be deleted."""

    store: ObjectStore
    service: ReplicatedService
    deletion: DeletionSite | None

    async def names(self, *, after: str, limit: int) -> Sequence[str]:
        """See `memoree.tenants.Tenants.names`: one LIST of prefixes per thousand tenants."""
        prefixes = [each async for each in self.store.children(layout.TENANTS_PREFIX)]
        names = sorted(each.removeprefix(layout.TENANTS_PREFIX).removesuffix("/") for each in prefixes)
        return [name for name in names if name > after][:limit]

    async def show(self, tenant: str) -> Json:
        """See `memoree.tenants.Tenants.show`. What cannot be read of a damaged tenant is told under `fault`."""
        head = await self._head_file(tenant).read()
        if head is None:
            return await self._show_without_head(tenant)
        shown = {"tenant": tenant, **_of_head(head)}
        try:
            own, counters = await self.service.snapshot(tenant, quota.read)
            shown |= {"rows": counters.held_rows, "bytes": counters.held_bytes, "quota": own._asdict()}
        except MemoreeError as error:
            shown["fault"] = error.message
        return {**shown, "last_backup": await self._last_backup(tenant)}

    async def create(self, tenant: str, wanted: Mapping[str, Any]) -> Json:
        """See `memoree.tenants.Tenants.create`."""
        existed = await self._head_file(tenant).read() is not None
        await self._write(tenant, CREATE, wanted)
        return {**await self.show(tenant), "created": not existed}

    async def set_quota(self, tenant: str, wanted: Mapping[str, Any]) -> Json:
        """See `memoree.tenants.Tenants.set_quota`."""
        if await self._head_file(tenant).read() is None:
            not_found("tenant", tenant)
        written = await self._write(tenant, QUOTA, wanted)
        return {"tenant": tenant, "quota": {name: written.get(name) for name in quota.Quota._fields}}

    async def announce_deletion(self, tenant: str) -> Json:
        """See `memoree.tenants.Tenants.announce_deletion`."""
        self._deletion()
        goes = await self.show(tenant)
        confirmation = secrets.token_hex(CONFIRMATION_BYTES)
        await self.store.put(layout.deletion_key(tenant), orjson.dumps({"sha256": _digest(confirmation)}))
        return {**goes, "confirmation": confirmation, "confirm_within_seconds": CONFIRMATION_SECONDS_MAX}

    async def delete(self, tenant: str, confirmation: str) -> Json:
        """See `memoree.tenants.Tenants.delete`."""
        site = self._deletion()
        await self._use(tenant, confirmation)
        return await delete_tenant(site, tenant)

    def _deletion(self) -> DeletionSite:
        if self.deletion is None:
            raise NotHere("this process may delete no tenant; `memoree tenant delete NAME` does it")
        return self.deletion

    async def _use(self, tenant: str, confirmation: str) -> None:
        """Use the confirmation up. Raises `NOT_FOUND` for a tenant without objects, and `REVISION_CONFLICT`."""
        key = layout.deletion_key(tenant)
        try:
            found = await self.store.get(key)
        except ObjectMissing:
            if not await self._has_objects(tenant):
                not_found("tenant", tenant)
            raise _unconfirmed() from None
        assert found is not None, "a GET without a condition always has a body"
        announced = _announced(found.body)
        fresh = found.date - found.info.last_modified <= timedelta(seconds=CONFIRMATION_SECONDS_MAX)
        if announced is None or not fresh or not hmac.compare_digest(announced, _digest(confirmation)):
            raise _unconfirmed()
        try:
            await self.store.put(key, orjson.dumps({"used": True}), if_match=found.info.etag)
        except PreconditionFailed:
            raise _unconfirmed() from None

    async def _show_without_head(self, tenant: str) -> Json:
        """Of one that only ever had uploads, or was damaged. Raises `NOT_FOUND` for any other."""
        if not await self._has_objects(tenant):
            not_found("tenant", tenant)
        shown: Json = {"tenant": tenant, "commit_seq": 0}
        if await self._head_file(tenant).is_missing():
            shown["fault"] = head_missing(self._head_file(tenant).key).message
        return shown

    def _head_file(self, tenant: str) -> HeadFile:
        return HeadFile(self.store, layout.tenant_prefix(tenant))

    async def _has_objects(self, tenant: str) -> bool:
        async for _ in self.store.list(layout.tenant_prefix(tenant)):
            return True
        return False

    async def _last_backup(self, tenant: str) -> Json | None:
        if not (published := await record.published(self.store, tenant)):
            return None
        newest = max(published)
        try:
            made = await record.find(self.store, tenant, newest)
        except MemoreeError as error:
            return {"backup_id": newest, "fault": error.message}
        return {"backup_id": newest, "created_at": clock.wire(made.created_at), "commit_seq": made.commit_seq}

    async def _write(self, tenant: str, operation: str, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        reply = await self.service.call(check_tenant(tenant), request_of(operation, wanted, new_ulid()))
        if (error := reply.envelope.get("error")) is not None:
            raise MemoreeError.from_wire(error)
        result: Mapping[str, Any] = reply.envelope["result"]
        return result


def _of_head(reading: HeadReading) -> Json:
    head = reading.head
    lease = {"owner": head.owner, "released": head.released_at is not None, "renewed_seconds_ago": reading.age.seconds}
    return {
        "commit_seq": head.commit_seq,
        "history": head.history,
        "epoch": head.epoch,
        "schema_version": head.schema_version,
        "lease": lease,
    }


def _digest(confirmation: str) -> str:
    return sha256(confirmation.encode(errors="surrogatepass")).hexdigest()


def _announced(body: bytes) -> str | None:
    """The digest of what confirms the deletion; `None` when that was used."""
    try:
        return str(orjson.loads(body)["sha256"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _unconfirmed() -> MemoreeError:
    return MemoreeError(
        Code.REVISION_CONFLICT,
        "that does not confirm the deletion: a confirmation is of one tenant, holds once and for ten minutes, and a "
        "later one takes its place",
        details={"reason": "confirmation_required"},
    )
