"""Which tenants a principal may administer: its own, or all of them with an operator token."""

from __future__ import annotations

from typing import NoReturn

from memoree.errors import not_found
from memoree.http.auth import Principal


def administered(principal: Principal, tenant: str) -> None:
    """Refuse a tenant that is not the principal's to administer. Raises `NOT_FOUND`.

    It is asked before anything is looked up: a tenant of others and one that does not exist are told alike, and as
    fast.
    """
    if not principal.operator and tenant != principal.tenant:
        no_such_tenant(tenant)


def no_such_tenant(tenant: str) -> NoReturn:
    """Refuse a tenant that does not exist, in the words of one that is not the principal's. Raises `NOT_FOUND`."""
    not_found("tenant", tenant)
