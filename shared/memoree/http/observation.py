"""What is learned about a request while it is served, for metrics and logs. Never a token, never a body."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Scope

SCOPE_KEY = "memoree.observation"
ROUTE_UNKNOWN = "other"
CODE_OK = "ok"


@dataclass(slots=True)
class Observation:
    """`route` and `op` come from closed sets, so that they can be metric labels."""

    route: str = ROUTE_UNKNOWN
    op: str = ""
    code: str = ""
    status: int = 0
    tenant: str = ""
    request_id: str = ""
    """Of the envelope, where there is one."""
    http_request_id: str = ""
    """What `X-Request-Id` says."""
    body_read: bool = False
    """Whether the request's body was read to its end."""


def observation(scope: Scope) -> Observation:
    """The request's observation; a new one where no middleware began one."""
    found = scope.get(SCOPE_KEY)
    if isinstance(found, Observation):
        return found
    begun = scope[SCOPE_KEY] = Observation()
    return begun
