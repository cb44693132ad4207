"""`memoree up`: one host's whole stack as supervised children of one process.

SeaweedFS first, proved to keep its promises; then the writer with its Litestream child, and the api processes on
one shared listening socket; once they are ready, the worker of the ingest queue and the jobs. Stopping settles the
writer and then kills SeaweedFS, whose clean stop takes 16 s and saves nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from memoree.errors import Code, MemoreeError
from memoree.http.auth import Tokens
from memoree.objects.s3 import S3Store
from memoree.objects.selftest import prove_store
from memoree.private_file import write_private
from memoree.stack.instance import Instance
from memoree.stack.keeper import RESTART_SECONDS_MAX, RESTART_SECONDS_MIN, STABLE_SECONDS, Keeper
from memoree.stack.options import UpOptions
from memoree.stack.ports import LOOPBACK
from memoree.stack.seaweedfs import SeaweedServer
from memoree.stack.tokens import ensure_tokens, ensure_tokens_file
from memoree.tokens.places import FILE_VARIABLE, Access, TokensObject, TokensPlace, named_place

READY_SECONDS_MAX = 30.0
READY_POLL_SECONDS = 0.05
READY_TIMEOUT_SECONDS = 1.0
"""The socket listens before anybody serves on it: a request waits that long for an api process to come up."""
CLIENT_STOP_SECONDS = 1.5
WRITER_STOP_SECONDS = 2.5
LISTEN_BACKLOG = 1024
DEPLOYMENT_NAME = "deployment.env"
TOKENS_NAME = "tokens.json"

Say = Callable[[str], None]
Announce = Callable[[Mapping[str, Any]], None]


class Stopped(Exception):
    """A signal asked to stop before everything was started."""


class Supervisor:
    """One run of `memoree up`. `say` gets progress for a person, `announce` the URLs, once."""

    def __init__(self, options: UpOptions, say: Say, announce: Announce) -> None:
        self._options = options
        self._say = say
        self._announce = announce
        self._data = options.data_dir.absolute()
        self._store = SeaweedServer(self._data / "seaweedfs")
        self._stopping = asyncio.Event()
        self._writer: Keeper | None = None
        self._ingest: Keeper | None = None
        self._jobs: Keeper | None = None
        self._apis: list[Keeper] = []
        self._sockets: list[socket.socket] = []
        self._instance: Instance
        self._tokens: TokensPlace
        self._state: dict[str, Any] = {}

    async def run(self) -> None:
        """Until SIGINT or SIGTERM. Raises `CONFIG_ERROR` when something cannot start."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        with Instance.hold(self._data) as self._instance:
            try:
                await self._start()
                await self._supervise_store()
            except Stopped:
                pass
            finally:
                await self._stop()

    # --- starting -----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._tokens = self._tokens_place()
        if not (in_the_store := isinstance(self._tokens, TokensObject)):
            await self._unless_stopped(self._check_tokens())
        main_socket = self._bind(self._options.port)
        metrics_sockets = [
            self._bind(self._options.metrics_port + number if self._options.metrics_port else 0)
            for number in range(self._options.api_processes)
        ]
        self._say("starting SeaweedFS")
        await self._unless_stopped(self._store.start())
        self._say("proving the store: create-only writes, compare-and-swap, a canary")
        await self._unless_stopped(self._prove_store())
        if in_the_store:
            await self._unless_stopped(self._check_tokens())
        self._write_deployment()
        self._say("starting the writer")
        self._writer = self._keep("supervised-writer", [])
        for number, metrics in enumerate(metrics_sockets, start=1):
            self._say(f"starting api process {number} of {len(metrics_sockets)}")
            self._apis.append(self._keep("api", [main_socket, metrics], log_name=f"api-{number}.log"))
        await self._unless_stopped(self._until_ready(main_socket))
        self._ingest = self._keep("ingest", [])
        self._jobs = self._keep("jobs", [])
        self._state = self._whereabouts(main_socket, metrics_sockets)
        self._publish()
        self._announce(self._state)
        self._say(f"ready; the token is in {self._tokens}")

    def _tokens_place(self) -> TokensPlace:
        """Raises `CONFIG_ERROR`."""
        named = {} if self._options.tokens_file is None else {FILE_VARIABLE: self._options.tokens_file}
        place = named_place({**os.environ, **self._options.overrides, **named})
        if place is None:
            ensure_tokens_file(place := self._data / TOKENS_NAME)
        return place.absolute() if isinstance(place, Path) else place

    async def _check_tokens(self) -> None:
        """Raises `CONFIG_ERROR` for tokens that open nothing; in the object store there are some afterwards."""
        place = self._tokens
        if isinstance(place, TokensObject):
            place = replace(place, access=Access.from_environment(self._environment()))
        tokens = Tokens(place)
        async with tokens.opened(followed=False):
            if isinstance(place, TokensObject):
                await ensure_tokens(tokens.source)
                await tokens.refresh()
            if not (found := tokens.check()).ok:
                raise MemoreeError(Code.CONFIG_ERROR, f"nobody could use the stack: {place}: {found.detail}")

    async def _prove_store(self) -> None:
        async with S3Store(self._store.settings) as store:
            await prove_store(store)

    def _keep(self, name: str, sockets: list[socket.socket], *, log_name: str | None = None) -> Keeper:
        """`log_name` is the child's alone: two that rotate one file would lose lines."""
        descriptors = [each.fileno() for each in sockets]
        return Keeper(
            name,
            [sys.executable, "-m", "memoree.stack.processes", name, *map(str, descriptors)],
            environment=self._environment(),
            directory=self._data,
            log_path=self._data / (log_name or f"{name}.log"),
            say=self._say,
            started=self._publish,
            pass_fds=descriptors,
        )

    def _write_deployment(self) -> None:
        """How other processes of this deployment find the store and the queue: `memoree worker writer`, say."""
        lines = "".join(f"{name}={value}\n" for name, value in self._settings().items())
        write_private(self._data / DEPLOYMENT_NAME, lines.encode())

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self._settings()}

    def _settings(self) -> dict[str, str]:
        """Where everything is. Secrets travel in environments and 0600 files, nowhere else."""
        store = self._store.settings
        assert store.endpoint_url is not None and store.access_key_id is not None
        assert store.secret_access_key is not None
        settings = {
            "MEMOREE_BUCKET": store.bucket,
            "MEMOREE_ENDPOINT_URL": store.endpoint_url,
            "MEMOREE_REGION": store.region,
            "MEMOREE_ACCESS_KEY_ID": store.access_key_id,
            "MEMOREE_SECRET_ACCESS_KEY": store.secret_access_key,
            "MEMOREE_QUEUE_URL": f"sqlite://{self._data / 'queue.sqlite3'}",
            "MEMOREE_INGEST_QUEUE_URL": f"sqlite://{self._data / 'ingest.sqlite3'}",
            "MEMOREE_RUNTIME_DIR": str(self._data / "runtime"),
            "MEMOREE_BLOB_STORE_NAME": "seaweedfs",
            "MEMOREE_API_DELETES_TENANTS": "true",
            "MEMOREE_API_PROCESSES": str(self._options.api_processes),
        }
        if self._options.rate_per_second is not None:
            settings["MEMOREE_RATE_PER_SECOND"] = str(self._options.rate_per_second)
        if self._options.rate_burst is not None:
            settings["MEMOREE_RATE_BURST"] = str(self._options.rate_burst)
        settings |= self._options.overrides
        if isinstance(self._tokens, Path | TokensObject):
            settings[FILE_VARIABLE] = str(self._tokens)
        return settings

    def _bind(self, port: int) -> socket.socket:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._sockets.append(bound)
        try:
            bound.bind((LOOPBACK, port))
        except OSError as error:
            raise MemoreeError(Code.CONFIG_ERROR, f"port {port} cannot be used: {error.strerror}") from error
        bound.listen(LISTEN_BACKLOG)
        return bound

    async def _until_ready(self, main_socket: socket.socket) -> None:
        """The api processes say that a write would work. A first start of everything takes some seconds. Raises
        `CONFIG_ERROR` when a child ends before that: whatever is wrong with it now, it will be again."""
        obstacle: str | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS_MAX), httpx.AsyncClient(trust_env=False) as client:
                while (obstacle := await _obstacle(client, main_socket)) is not None:
                    for keeper in self._keepers:
                        if keeper.last_ending is not None:
                            raise MemoreeError(Code.CONFIG_ERROR, f"the stack cannot start: {keeper.last_ending}")
                    await asyncio.sleep(READY_POLL_SECONDS)
                return
        raise MemoreeError(Code.CONFIG_ERROR, f"the stack is not ready after {READY_SECONDS_MAX:g} s: {obstacle}")

    @property
    def _keepers(self) -> list[Keeper]:
        return [*(each for each in (self._writer, self._ingest, self._jobs) if each is not None), *self._apis]

    def _publish(self) -> None:
        """Tell `status` where everything is, once everything is there; the children change as they are restarted."""
        if not self._state:
            return
        children = [{"name": keeper.name, "pid": keeper.pid} for keeper in self._keepers]
        self._instance.publish({**self._state, "children": children})

    def _whereabouts(self, main_socket: socket.socket, metrics_sockets: list[socket.socket]) -> dict[str, Any]:
        return {
            "url": _url(main_socket),
            "metrics_urls": [f"{_url(each)}/metrics" for each in metrics_sockets],
            "s3_url": self._store.settings.endpoint_url,
            "bucket": self._store.bucket,
            "data_dir": str(self._data),
            "runtime_dir": self._settings()["MEMOREE_RUNTIME_DIR"],
            "tokens_file": str(self._tokens),
            "pid": os.getpid(),
        }

    # --- running and stopping -----------------------------------------------------------------------------------

    async def _supervise_store(self) -> None:
        """The store is restarted like every other child; writers and readers wait for it meanwhile."""
        pause = RESTART_SECONDS_MIN
        while not self._stopping.is_set():
            began = time.monotonic()
            if self._store.is_alive:
                await self._unless_stopped(self._store.wait())
            if time.monotonic() - began > STABLE_SECONDS:
                pause = RESTART_SECONDS_MIN
            self._say(f"SeaweedFS is down; starting it again in {pause:.1f} s")
            await self._store.kill()
            await self._unless_stopped(asyncio.sleep(pause))
            pause = min(pause * 2, RESTART_SECONDS_MAX)
            try:
                await self._unless_stopped(self._store.start())
            except MemoreeError as error:
                self._say(f"SeaweedFS does not start: {error.message}")

    async def _unless_stopped(self, work: Coroutine[Any, Any, object]) -> None:
        """Do the work, unless the signal to stop comes first. Raises `Stopped`."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise Stopped
            working.result()
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)

    async def _stop(self) -> None:
        self._say("stopping")
        try:
            clients = [*self._apis, *(each for each in (self._ingest, self._jobs) if each is not None)]
            await asyncio.gather(*(client.stop(CLIENT_STOP_SECONDS) for client in clients), return_exceptions=True)
            if self._writer is not None:
                await self._writer.stop(WRITER_STOP_SECONDS)
        finally:
            await self._store.kill()
            for each in self._sockets:
                each.close()


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{host}:{port}"


async def _obstacle(client: httpx.AsyncClient, listening: socket.socket) -> str | None:
    """What keeps the stack from being ready; `None` when nothing does."""
    try:
        answer = await client.get(f"{_url(listening)}/readyz", timeout=READY_TIMEOUT_SECONDS)
        if answer.status_code == httpx.codes.OK:
            return None
        failed = [f"{name}: {check['detail']}" for name, check in answer.json()["checks"].items() if not check["ok"]]
    except (httpx.TransportError, ValueError, LookupError, TypeError):
        return "no api process answers"
    return "; ".join(failed)
