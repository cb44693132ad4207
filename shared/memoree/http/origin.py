"""Who may reach an unauthenticated door from a browser: nobody but its own pages.

A page of any site can make a browser on this machine send requests here, under the site's own name once that name
resolves to 127.0.0.1 (DNS rebinding). So `Host` must be a loopback name, and an `Origin` must be this very server.
What a page embeds, images for example, is fetched without an `Origin`; of that browsers say whose the page is.
"""

from __future__ import annotations

import ipaddress

from starlette.types import ASGIApp, Receive, Scope, Send

from memoree.errors import Code, MemoreeError
from memoree.http.answers import HttpRefusal, header_values, refusal_answer
from memoree.http.body import send_answer
from memoree.http.observation import observation

_ORIGIN_PREFIXES = (b"http://", b"https://")
_FOREIGN_SITES = (b"cross-site", b"same-site")
"""Values of `Sec-Fetch-Site`. `same-site` is another port or name of this machine."""
_FOREIGN_PAGE = "requests from pages of another origin are refused; configure tokens to allow them"


class LoopbackGuard:
    """Answers 403 unless `Host` names loopback, `Origin`, where there is one, equals it, and no page of another site is
    behind the request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = _foreign(scope) if scope["type"] == "http" else None
        if refused is None:
            await self.app(scope, receive, send)
            return
        observation(scope).code = refused.error.code
        await send_answer(refusal_answer(scope, refused), scope, receive, send)


def is_loopback(host: str) -> bool:
    """Whether a host name or address, without port, can only be this machine."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _foreign(scope: Scope) -> HttpRefusal | None:
    hosts = header_values(scope, b"host")
    if len(hosts) != 1 or not is_loopback(_without_port(hosts[0].decode("latin-1"))):
        return _refuse("the Host header does not name this machine; without tokens only loopback is served")
    for origin in header_values(scope, b"origin"):
        if origin.lower() not in (prefix + hosts[0].lower() for prefix in _ORIGIN_PREFIXES):
            return _refuse(_FOREIGN_PAGE)
    if any(site.strip().lower() in _FOREIGN_SITES for site in header_values(scope, b"sec-fetch-site")):
        return _refuse(_FOREIGN_PAGE)
    return None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _refuse(message: str) -> HttpRefusal:
    return HttpRefusal(MemoreeError(Code.FORBIDDEN, message))
