"""How the app comes by its service: given ready-made, or opened and closed with the app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

from memoree.database.quota import Quota
from memoree.service import Service

ServiceFactory: TypeAlias = Callable[[], AbstractAsyncContextManager[Service]]
ServiceSource: TypeAlias = Service | ServiceFactory


class ServiceHolder:
    """The process's service. One that was given is its giver's to close."""

    def __init__(self, source: ServiceSource) -> None:
        self._factory: ServiceFactory | None = None
        self._service: Service | None = None
        if callable(source):
            self._factory = source
        else:
            self._service = source

    @property
    def open(self) -> bool:
        return self._service is not None

    @property
    def service(self) -> Service:
        assert self._service is not None, "the app's lifespan has not begun"
        return self._service

    def granted(self, tenant: str) -> Quota | None:
        """As `Service.granted`; nothing is known while there is no service."""
        return None if self._service is None else self._service.granted(tenant)

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        if self._factory is None:
            yield
            return
        async with self._factory() as self._service:
            yield
        self._service = None
