"""`/v1/admin/tokens`: list, make and revoke tokens, of one's own tenant or, as an operator, of all.

`GET` 200 `{"tokens": [{id, tenant, scopes, …}]}`; `POST` 201 with the new one and its `token`, which is never told
again; `DELETE …/{id}` 200 with the one that was revoked. An `id` is the beginning of the token's SHA-256.
"""

from __future__ import annotations

import logging

from starlette.types import Receive, Scope

from memoree.errors import Code, MemoreeError, invalid
from memoree.http.admin.access import administered
from memoree.http.admin.endpoint import AdminEndpoint, refuse_parameters
from memoree.http.answers import Answer, HttpRefusal, json_answer
from memoree.http.auth import Principal
from memoree.http.gate import Gate
from memoree.tokens.administration import Choice, TokensAdministration
from memoree.tokens.document import OPERATOR_TENANT, Token, TokenEntry, TokenRights

TOKENS_PATH = "/v1/admin/tokens"
NOT_HERE = 501
"""Where the tokens are kept by what this service may not change."""

log = logging.getLogger(__name__)


class NewToken(TokenRights):
    """What `POST` takes. Only an operator has to name a tenant."""

    tenant: str | None = None


class TokensEndpoint(AdminEndpoint):
    """What the three methods have in common."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(gate)
        self._tokens = gate.tokens

    def _administration(self, *, writing: bool) -> TokensAdministration:
        """Raises `NOT_FOUND` where nobody is asked for a token, and 501."""
        if self._tokens is None:
            raise MemoreeError(Code.NOT_FOUND, "this service asks for no tokens; start it with a tokens file")
        if writing and not self._tokens.source.writable:
            message = "the tokens of this service are changed where it gets them from, not here"
            raise HttpRefusal(MemoreeError(Code.CONFIG_ERROR, message), status=NOT_HERE)
        return TokensAdministration(self._tokens.source, only_tenant=self._tokens.only_tenant)

    async def _changed(self, what: str, token: Token, principal: Principal) -> None:
        """This process knows at once; others, when they look again."""
        log.info("%s: token %s of %s, by an administrator of %s", what, token.id, token.entry.tenant, principal.tenant)
        assert self._tokens is not None, "what was changed is there"
        await self._tokens.refresh()


class ListTokensEndpoint(TokensEndpoint):
    async def _answer(self, scope: Scope, receive: Receive, principal: Principal) -> Answer:
        refuse_parameters(scope)
        found = await self._administration(writing=False).listed(_administered_by(principal))
        return json_answer({"tokens": [token.to_wire() for token in found.tokens]})


class CreateTokenEndpoint(TokensEndpoint):
    """Nobody gives away more than they have: a tenant's administrator makes tokens of that tenant, with scopes of the
    own token. For any other tenant the answer is 404, whether or not there is one."""

    async def _answer(self, scope: Scope, receive: Receive, principal: Principal) -> Answer:
        refuse_parameters(scope)
        asked = await self._body(scope, receive, NewToken)
        entry = TokenEntry(**asked.model_dump(exclude={"tenant"}), tenant=_tenant_of(asked, principal))
        administered(principal, entry.tenant)
        if not principal.operator:
            for scope_name in entry.scopes:
                principal.require(scope_name)
        secret, made = await self._administration(writing=True).create(entry)
        await self._changed("made", made, principal)
        return json_answer({"token": secret, **made.to_wire()}, 201)


class RevokeTokenEndpoint(TokensEndpoint):
    """A token that is not the caller's to administer is none."""

    async def _answer(self, scope: Scope, receive: Receive, principal: Principal) -> Answer:
        refuse_parameters(scope)
        administration = self._administration(writing=True)
        revoked = await administration.revoke(scope["path_params"]["id"], _administered_by(principal))
        await self._changed("revoked", revoked, principal)
        return json_answer(revoked.to_wire())


def _tenant_of(asked: NewToken, principal: Principal) -> str:
    if asked.tenant is None and principal.operator:
        invalid(f"body.tenant: is required from an operator; {OPERATOR_TENANT} makes another operator's token")
    return principal.tenant if asked.tenant is None else asked.tenant


def _administered_by(principal: Principal) -> Choice:
    return lambda entry: principal.operator or entry.tenant == principal.tenant
