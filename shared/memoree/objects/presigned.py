"""Sending presigned deletes: requests that a store refuses once they have expired, whenever it gets to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from memoree.objects import ObjectStoreError, StoreUnavailable

if TYPE_CHECKING:
    import httpx

REQUEST_TIMEOUT_SECONDS = 10.0

Send = Callable[[str], Awaitable[None]]
"""Sends a DELETE of the URL. Raises `StoreUnavailable` without an answer, and `ObjectStoreError` for a refusal."""


@asynccontextmanager
async def sending() -> AsyncIterator[Send]:
    """Connections are kept as long as the block runs."""
    import httpx  # a fifth of what a function needs to start, and most runs delete nothing

    async with AsyncExitStack() as stack:
        clients: dict[bool, httpx.AsyncClient] = {}

        async def send(url: str) -> None:
            proxied = not httpx.URL(url).host.startswith("127.")
            if proxied not in clients:
                client = httpx.AsyncClient(timeout=REQUEST_TIMEOUT_SECONDS, trust_env=proxied)
                clients[proxied] = await stack.enter_async_context(client)
            try:
                answer = await clients[proxied].delete(url)
            except httpx.TransportError as error:
                raise StoreUnavailable(f"a presigned DELETE had no answer: {type(error).__name__}") from error
            if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
                raise StoreUnavailable(f"a presigned DELETE was answered {answer.status_code}")
            if answer.is_error and answer.status_code != httpx.codes.NOT_FOUND:
                raise ObjectStoreError(f"a presigned DELETE was refused with {answer.status_code}")

        yield send
