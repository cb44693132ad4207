"""The tenants of a deployment, as its operator sees them: `memoree tenant` and `/v1/admin/tenants`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from memoree.errors import Code, MemoreeError

CONFIRMATION_SECONDS_MAX = 600.0
"""So long a deletion may be confirmed, by the store's clock."""
NAMES_DEFAULT, NAMES_MAX = 100, 1000
"""Of one page."""


class Tenants(Protocol):
    """Results are what is printed and answered: plain members, times in wire form. All raise `TRANSPORT_ERROR` for a
    store or writer that does not answer, and `INTEGRITY_ERROR` for damage."""

    async def names(self, *, after: str, limit: int) -> Sequence[str]:
        """Up to `limit` names beyond `after`, in ascending order, of tenants that have objects, be it an upload alone:
        cheap."""

    async def show(self, tenant: str) -> Mapping[str, Any]:
        """What it holds and may hold, and how it is. Raises `NOT_FOUND`."""

    async def create(self, tenant: str, quota: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make it exist, with that quota; one that exists keeps what is not named. One that was deleted begins anew,
        empty."""

    async def set_quota(self, tenant: str, quota: Mapping[str, Any]) -> Mapping[str, Any]:
        """Each member sets a limit, or takes it away by `None`. Raises `NOT_FOUND`."""

    async def announce_deletion(self, tenant: str) -> Mapping[str, Any]:
        """What would go, as `show` tells it, and the `confirmation` that makes it go: for this tenant, once, within
        `CONFIRMATION_SECONDS_MAX`; an earlier one is void. Raises `NOT_FOUND`, `NotHere`."""

    async def delete(self, tenant: str, confirmation: str) -> Mapping[str, Any]:
        """Remove it with everything it has (see `memoree.jobs.tenant_deletion`). Raises `NOT_FOUND`, `NotHere`, and
        `REVISION_CONFLICT` for a confirmation that does not hold."""


class NotHere(MemoreeError):
    """This process has no right to do it; the message says who has."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.CONFIG_ERROR, message)


def page(names: Sequence[str], limit: int) -> dict[str, Any]:
    """What is told of one name more than are shown, if there is one: `next` is what the next page comes after."""
    shown = list(names[:limit])
    return {"tenants": shown, **({"next": shown[-1]} if len(names) > limit else {})}
