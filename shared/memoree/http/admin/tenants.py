"""`/v1/admin/tenants`: list, found, look at, bound and delete tenants.

An operator does all of it. A tenant's administrator looks at that tenant: its quota is not its own to raise, and any
other tenant is told as one that does not exist. `DELETE` takes two steps: without a `confirmation` it is 428 and tells
what would go and what confirms it.
"""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope

from memoree.envelope import WireModel
from memoree.errors import Code, MemoreeError, invalid
from memoree.http.admin.access import administered
from memoree.http.admin.endpoint import AdminEndpoint, refuse_parameters
from memoree.http.answers import ADMIN_PATH, Answer, HttpRefusal, json_answer
from memoree.http.auth import Principal
from memoree.http.gate import Gate
from memoree.http.services import ServiceHolder
from memoree.objects.blobs import check_tenant
from memoree.operations.quota import TenantQuota
from memoree.tenants import CONFIRMATION_SECONDS_MAX, NAMES_DEFAULT, NAMES_MAX, NotHere, Tenants, page

TENANTS_PATH = f"{ADMIN_PATH}/tenants"


class NewTenant(WireModel):
    """What `POST` takes."""

    tenant: str
    quota: TenantQuota | None = None


class TenantsEndpoint(AdminEndpoint):
    """What the routes have in common."""

    def __init__(self, services: ServiceHolder, gate: Gate) -> None:
        super().__init__(gate)
        self._services = services

    @property
    def _tenants(self) -> Tenants:
        return self._services.service.administration

    async def _answer(self, scope: Scope, receive: Receive, principal: Principal) -> Answer:
        try:
            return await self._administer(scope, receive, principal)
        except NotHere as error:
            raise HttpRefusal(error, status=HTTPStatus.NOT_IMPLEMENTED) from error

    async def _administer(self, scope: Scope, receive: Receive, principal: Principal) -> Answer:
        """Raises as `_answer`."""
        raise NotImplementedError


class ListTenantsEndpoint(TenantsEndpoint):
    """A tenant's administrator sees that tenant alone, whatever there is."""

    async def _administer(self, scope: Scope, receive: Receive, principal: Principal) -> Answer:
        asked = _parameters(scope, "after", "limit")
        after, limit = asked.get("after", ""), _limit(asked.get("limit"))
        if not principal.operator:
            return json_answer(page([principal.tenant] if after < principal.tenant else [], limit))
        return json_answer(page(await self._tenants.names(after=after, limit=limit + 1), limit))


class CreateTenantEndpoint(TenantsEndpoint):
    async def _administer(self, scope: Scope, receive: Receive, principal: Principal) -> Answer:
        refuse_parameters(scope)
        asked = await self._body(scope, receive, NewTenant)
        administered(principal, asked.tenant)
        _require_operator(principal)
        _check_name(asked.tenant)
        wanted = asked.quota.model_dump(exclude_unset=True) if asked.quota is not None else {}
        made = await self._tenants.create(asked.tenant, wanted)
        return json_answer(made, HTTPStatus.CREATED if made["created"] else HTTPStatus.OK)


class ShowTenantEndpoint(TenantsEndpoint):
    async def _administer(self, scope: Scope, receive: Receive, principal: Principal) -> Answer:
        refuse_parameters(scope)
        return json_answer(await self._tenants.show(_tenant(scope, principal)))


class QuotaEndpoint(TenantsEndpoint):
    """The whole quota: what is not sent is taken away."""

    async def _administer(self, scope: Scope, receive: Receive, principal: Principal) -> Answer:
        refuse_parameters(scope)
        tenant = _tenant(scope, principal)
        _require_operator(principal)
        asked = await self._body(scope, receive, TenantQuota)
        return json_answer(await self._tenants.set_quota(tenant, asked.model_dump()))


class DeleteTenantEndpoint(TenantsEndpoint):
    async def _administer(self, scope: Scope, receive: Receive, principal: Principal) -> Answer:
        asked = _parameters(scope, "confirmation")
        tenant = _tenant(scope, principal)
        _require_operator(principal)
        if "confirmation" in asked:
            return json_answer(await self._tenants.delete(tenant, asked["confirmation"]))
        raise HttpRefusal(
            MemoreeError(
                Code.REVISION_CONFLICT,
                f"nothing was deleted; send the same with ?confirmation=, within {CONFIRMATION_SECONDS_MAX:g} s",
                hint="look at what would go first: nothing brings it back",
                details={"reason": "confirmation_required", **await self._tenants.announce_deletion(tenant)},
            ),
            status=HTTPStatus.PRECONDITION_REQUIRED,
        )


def _tenant(scope: Scope, principal: Principal) -> str:
    """The tenant of the path, if it is the principal's to administer. Raises `NOT_FOUND`."""
    tenant: str = scope["path_params"]["tenant"]
    administered(principal, tenant)
    _check_name(tenant)
    return tenant


def _check_name(tenant: str) -> None:
    try:
        check_tenant(tenant)
    except MemoreeError as error:
        invalid(error.message)


def _require_operator(principal: Principal) -> None:
    """Raises `FORBIDDEN`."""
    if not principal.operator:
        raise MemoreeError(Code.FORBIDDEN, "only an operator token may do that; a tenant's administrator may look")


def _parameters(scope: Scope, *known: str) -> dict[str, str]:
    """Each once at most. Raises `INVALID_REQUEST`."""
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    found = dict(pairs)
    if len(found) < len(pairs) or not found.keys() <= {*known}:
        invalid(f"the parameters of this route are {', '.join(known)}, each once")
    return found


def _limit(text: str | None) -> int:
    if text is None:
        return NAMES_DEFAULT
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= NAMES_MAX):
        invalid(f"limit: must be a number from 1 to {NAMES_MAX}")
    return int(text)
