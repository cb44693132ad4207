"""Running the app under uvicorn: listeners, the rule that no open door leaves this machine, signals and draining."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from memoree import limits
from memoree.errors import Code, MemoreeError
from memoree.http.app import metrics_app
from memoree.http.connection import BoundedHttpProtocol
from memoree.http.origin import is_loopback
from memoree.http.settings import HttpSettings

DRAIN_SECONDS = 30
KEEP_ALIVE_SECONDS = 30
BACKLOG = 2048

log = logging.getLogger(__name__)


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes a free one. N processes that inherit it share the port.
    Raises `CONFIG_ERROR` when the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _unusable(host, port, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limits.STREAM_PIECE_BYTES)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _unusable(host, port, error) from error
    return listener


def inherited(fd: int) -> socket.socket:
    """The listening socket that a parent process left at this descriptor. Raises `CONFIG_ERROR`."""
    try:
        listener = socket.socket(fileno=fd)
        if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise OSError("it does not listen")
    except OSError as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"descriptor {fd} is no listening socket: {error}") from error
    return listener


def refuse_open_door(listener: socket.socket, settings: HttpSettings) -> None:
    """Without tokens only loopback is served. Raises `CONFIG_ERROR`."""
    if settings.tokens_file is not None or listener.family == socket.AF_UNIX:
        return
    host = listener.getsockname()[0]
    if not is_loopback(host):
        raise MemoreeError(
            Code.CONFIG_ERROR,
            f"without a tokens file only loopback is served, and {host} is more; configure tokens or bind 127.0.0.1",
        )


class HttpServer:
    """One process's server. `run` returns after a drain, when a signal or `stop` asked for it.

    A second listener, when given, serves `/metrics` on an address of its own.
    """

    def __init__(
        self,
        app: Starlette,
        listener: socket.socket,
        *,
        metrics_listener: socket.socket | None = None,
        drain_seconds: int = DRAIN_SECONDS,
    ) -> None:
        refuse_open_door(listener, app.state.settings)
        self._main = _Server(_config(app, drain_seconds, lifespan="on"), announced=True, draining=app.state.draining)
        self._listener = listener
        self._metrics: _Server | None = None
        self._metrics_listener = metrics_listener
        if metrics_listener is not None:
            self._metrics = _Server(_config(metrics_app(app), drain_seconds, lifespan="off"), announced=False)

    @property
    def started(self) -> bool:
        return self._main.started

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT or `stop`; then finish what is being served and return. A second SIGINT or
        SIGTERM does not wait for it."""
        with asyncio.Runner(loop_factory=self._main.config.get_loop_factory()) as runner:
            runner.run(self.serve())

    async def serve(self) -> None:
        """As `run`, inside a running loop."""
        self._handle_signals()
        if self._metrics is None or self._metrics_listener is None:
            await self._main.serve(sockets=[self._listener])
            return
        beside = asyncio.create_task(self._metrics.serve(sockets=[self._metrics_listener]))
        try:
            await self._main.serve(sockets=[self._listener])
        finally:
            self._metrics.should_exit = True
            await beside

    def stop(self) -> None:
        """Ask for the drain; from any thread."""
        self._main.force_exit = self._main.should_exit
        self._main.should_exit = True

    def _handle_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handling, which ends the process by the signal instead of status 0."""

    def __init__(self, config: uvicorn.Config, *, announced: bool, draining: asyncio.Event | None = None) -> None:
        super().__init__(config)
        self._announced = announced
        self._draining = draining

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._draining is not None:
            self._draining.set()
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            log.info("serving on %s", where := address_of(listener))
            if self._announced:
                sys.stderr.write(f"LISTENING_ON {where}\n")
                sys.stderr.flush()


def address_of(listener: socket.socket) -> str:
    """`host:port`, `[host]:port` or the path of a unix socket."""
    name = listener.getsockname()
    if isinstance(name, str):
        return name
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _config(app: Starlette, drain_seconds: int, *, lifespan: str) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="on" if lifespan == "on" else "off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
    )


def _unusable(host: str, port: int, error: OSError) -> MemoreeError:
    return MemoreeError(Code.CONFIG_ERROR, f"cannot listen on {host}:{port}: {error.strerror or error}")
