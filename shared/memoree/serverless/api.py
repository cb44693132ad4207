"""The api as a function, behind a function URL, an HTTP or REST API, or a load balancer.

A warm container's replicas may be hours old without knowing it: a frozen host's clock need not have moved. So every
request of a function looks at head first.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

from mangum import Mangum
from mangum.types import LambdaContext
from starlette.types import ASGIApp, Receive, Scope, Send

from memoree.assembly import replicated_service, s3_settings
from memoree.http.app import create_app
from memoree.http.auth import Tokens
from memoree.http.events import SECONDS_LEFT
from memoree.http.settings import HttpSettings
from memoree.objects.s3 import S3Store
from memoree.serverless.answers import WholeAnswers
from memoree.serverless.container import Container, Context, seconds_to_work
from memoree.settings import StackSettings

BACKGROUND_STALENESS_SECONDS = 60.0
"""Requests do not rely on it. A look at head that the end of an event froze would keep the next one waiting."""
_STRONG = (b"memoree-consistency", b"strong")


class WithinEvent:
    """Around an application: every request asks for strong reads, has the rest of its event's time, and is answered in
    plain bytes, which may have to be left in the store."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["headers"] = [*(each for each in scope["headers"] if each[0] != b"accept-encoding"), _STRONG]
        scope[SECONDS_LEFT] = seconds_to_work(scope["aws.context"])
        await self._app(scope, receive, send)


class ApiSite:
    """What one container serves all its events with."""

    def __init__(self, adapter: Mangum, tokens: Tokens) -> None:
        self.adapter = adapter
        self.tokens = tokens

    async def prepare(self) -> ApiSite:
        await self.tokens.refresh(if_due=True)
        return self


@asynccontextmanager
async def api_site(settings: StackSettings, environment: Mapping[str, str]) -> AsyncIterator[ApiSite]:
    """Raises `CONFIG_ERROR`."""
    http_settings = HttpSettings.from_environment(environment, tokens_required=True)
    async with AsyncExitStack() as stack:
        settings = settings.model_copy(update={"staleness_seconds_max": BACKGROUND_STALENESS_SECONDS})
        service = await stack.enter_async_context(replicated_service(settings, authorization=True))
        store = await stack.enter_async_context(S3Store(s3_settings(settings)))
        app = create_app(service, http_settings)
        tokens: Tokens = app.state.tokens
        await stack.enter_async_context(tokens.opened(followed=False))
        tokens.require_an_answer()
        yield ApiSite(Mangum(WholeAnswers(WithinEvent(app), store), lifespan="off"), tokens)


class ApiFunction:
    """A handler for Lambda."""

    def __init__(self) -> None:
        self.container = Container(lambda: api_site(StackSettings(), os.environ))

    def __call__(self, event: dict[str, Any], context: Context) -> dict[str, Any]:
        site = self.container.run(lambda opened: opened.prepare())
        return site.adapter(event, cast(LambdaContext, context))  # on the container's loop, which is the current one
