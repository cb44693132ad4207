"""What a tenant may hold, kept by its writer, and `tenant.create` and `tenant.quota`, by which an operator sets it
(`docs/operations.md`).

The writer alone knows what a tenant holds; it judges each mutation by what it did, inside its transaction. One that
added nothing may always be made: forgetting, retracting and erasing above all.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from memoree import limits
from memoree.database import quota as stored
from memoree.database.quota import Granted
from memoree.envelope import WireModel
from memoree.errors import Code, MemoreeError
from memoree.operations.call import Call
from memoree.operations.registry import INTERNAL, mutation
from memoree.operations.view import Applied, Transaction

CREATE = "tenant.create"
QUOTA = "tenant.quota"
HINT = "erase what is no longer needed, or ask the operator for a larger quota"

Count = Annotated[int, Field(ge=0, le=limits.COUNTER_MAX)]


class TenantQuota(WireModel):
    """Each member sets one limit, and `null` takes it away; one that is not sent stays as it is."""

    rows_max: Count | None = None
    bytes_max: Count | None = None
    rate_per_second: Annotated[float, Field(ge=1, le=limits.QUOTA_RATE_MAX)] | None = None
    rate_burst: Annotated[int, Field(ge=1, le=limits.QUOTA_RATE_MAX)] | None = None


class QuotaRecord(BaseModel):
    """What the tenant has of its own from now on; what is missing is as the deployment has it."""

    rows_max: int | None = None
    bytes_max: int | None = None
    rate_per_second: float | None = None
    rate_burst: int | None = None


@mutation(CREATE, position=INTERNAL, input=TenantQuota, result=QuotaRecord, scope="admin")
def create(tx: Transaction, call: Call[TenantQuota]) -> Applied:
    """That it arrives is what founds the tenant, also one that was deleted before (`memoree.replication.tombstone`)."""
    return set_quota(tx, call)


@mutation(QUOTA, position=INTERNAL, input=TenantQuota, result=QuotaRecord, scope="admin")
def set_quota(tx: Transaction, call: Call[TenantQuota]) -> Applied:
    present = stored.find(tx.db)
    before = present.quota if present is not None else stored.NONE
    after = before._replace(**call.input.model_dump(exclude_unset=True))
    record = QuotaRecord(**after._asdict())
    if after == before:
        return Applied(record, tx.meta.commit_seq, created=False)
    granted = Granted(after, tx.commit_seq)
    if present is not None:
        tx.sum.remove(stored.entry(present))
    stored.replace(tx.db, granted)
    tx.sum.add(stored.entry(granted))
    tx.allowed = after.over(tx.quota_default)
    return Applied(record, tx.record_event(QUOTA, "quota", tx.new_id("quo"), payload=after._asdict()))


def require_room(tx: Transaction) -> None:
    """Refuse the mutation just applied when it made the tenant hold more of something than it may:
    `CONTENT_TOO_LARGE`, with details `{limit, used, quota}`, `used` being what was held before it."""
    _require("rows", tx.meta.held_rows, tx.sum.held_rows, tx.allowed.rows_max)
    _require("bytes", tx.meta.held_bytes, tx.sum.held_bytes, tx.allowed.bytes_max)


def _require(limit: str, used: int, wanted: int, quota: int | None) -> None:
    if quota is None or wanted <= max(used, quota):
        return
    raise MemoreeError(
        Code.CONTENT_TOO_LARGE,
        f"the tenant holds {used} of the {quota} {limit} it may, and would hold {wanted}; nothing was stored",
        details={"limit": limit, "used": used, "quota": quota},
        hint=HINT,
    )
