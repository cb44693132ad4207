"""Tenants whose database an older program left: only a writer may migrate them, and nobody may read them until then.

So a writer that starts takes each of them over, also those that nobody writes to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from memoree.database.schema import MIGRATION_RETRY_SECONDS, SCHEMA_VERSION
from memoree.errors import MemoreeError
from memoree.objects import ObjectStore, ObjectStoreError
from memoree.replication import layout
from memoree.replication.head import HeadFile, HeadLost
from memoree.writer.reign import LeaseHeld

log = logging.getLogger(__name__)


async def migrate_outdated(store: ObjectStore, take_over: Callable[[str], Awaitable[None]]) -> None:
    """Returns when no tenant is left that `take_over` could migrate. What is out of reach, or in the hands of a writer
    that runs an older program, is tried again; a tenant that is damaged is left as it is."""
    given_up: set[str] = set()
    while True:
        again = False
        try:
            async for tenant in outdated_tenants(store):
                if tenant in given_up:
                    continue
                log.info("tenant %s has an older schema and is taken over", tenant)
                try:
                    await take_over(tenant)
                except (LeaseHeld, HeadLost, ObjectStoreError) as error:
                    again = True
                    log.info("tenant %s is not migrated yet: %s", tenant, error)
                except Exception:
                    given_up.add(tenant)
                    log.exception("tenant %s cannot be migrated", tenant)
        except ObjectStoreError as error:
            again = True
            log.warning("cannot look for tenants of an older schema: %s", error)
        if not again:
            return
        await asyncio.sleep(MIGRATION_RETRY_SECONDS)


async def outdated_tenants(store: ObjectStore) -> AsyncIterator[str]:
    """Every tenant whose head says an older schema than this program's. One look at each head; those that cannot be
    read as one are left to whoever uses the tenant. Raises `ObjectStoreError`."""
    async for prefix in store.children(layout.TENANTS_PREFIX):
        tenant = prefix.removeprefix(layout.TENANTS_PREFIX).removesuffix("/")
        try:
            reading = await HeadFile(store, layout.tenant_prefix(tenant)).read()
        except MemoreeError as error:
            log.warning("%s is not looked at: %s", prefix, error)
            continue
        if reading is not None and reading.head.schema_version < SCHEMA_VERSION:
            yield tenant
