"""The framed transport (machine protocol §1.6): `memoree serve --socket PATH`.

A frame is a length, 4 bytes big-endian, and that many bytes of JSON. One request and one response per connection,
four connections at a time, one trust domain: the user who may open the socket. There is no `tcp://` endpoint; what
must leave the machine uses HTTP and tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
from pathlib import Path
from types import TracebackType

from memoree import limits
from memoree.embedded import LOCAL_TENANT
from memoree.envelope import REQUEST_ID_UNREADABLE, encode
from memoree.errors import Code, MemoreeError
from memoree.http.body import check_density
from memoree.operations.call import decode, validate
from memoree.service import Request, Service, refusal

READ_SECONDS_MAX = 30.0
WRITE_SECONDS_MAX = 30.0
DRAIN_SECONDS = 30.0
PREFIX_BYTES = 4
SOCKET_PATH_BYTES_MAX = 107
"""`sun_path` of Linux without its final NUL; other systems refuse a little earlier, by themselves."""

log = logging.getLogger(__name__)


class FramedServer:
    """Serves a service at a unix socket, mode 0600, from `start` to `stop`; also an asynchronous context manager.

    The lock file `<path>.lock` is held while it serves and is left behind, since unlinking it would let two servers
    hold "the" lock. A socket whose lock is free is a leftover and is replaced; a live one never is.
    """

    def __init__(
        self,
        service: Service,
        path: Path,
        *,
        tenant: str = LOCAL_TENANT,
        read_seconds_max: float = READ_SECONDS_MAX,
        write_seconds_max: float = WRITE_SECONDS_MAX,
    ) -> None:
        self._service = service
        self._path = path
        self._tenant = tenant
        self._read_seconds_max = read_seconds_max
        self._write_seconds_max = write_seconds_max
        self._lock: int | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises `CONFIG_ERROR` for a path that cannot be used, `TRANSPORT_ERROR` when another server owns it."""
        if len(os.fsencode(self._path)) > SOCKET_PATH_BYTES_MAX:
            raise MemoreeError(
                Code.CONFIG_ERROR,
                f"the socket's path has more than {SOCKET_PATH_BYTES_MAX} bytes; choose a shorter one",
            )
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _locked(self._path)
            listener = _bound(self._path)
        except OSError as error:
            self._unlock()
            raise MemoreeError(
                Code.CONFIG_ERROR, f"cannot serve at the socket {self._path}: {error.strerror or error}"
            ) from error
        self._server = await asyncio.start_unix_server(self._accept, sock=listener)

    async def stop(self) -> None:
        """Accept nothing more, let what is being served finish, and remove the socket."""
        if self._server is None:
            return
        self._server.close()
        if self._connections:
            await asyncio.wait(self._connections, timeout=DRAIN_SECONDS)
        for task in self._connections:
            task.cancel()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        self._server = None
        self._unlock()

    async def __aenter__(self) -> FramedServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= limits.UNIX_CONNECTIONS_MAX:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._exchange(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One frame in, one frame out. The connection counts until the response is with the kernel."""
        writer.transport.set_write_buffer_limits(0)
        try:
            async with asyncio.timeout(self._read_seconds_max):
                request = await _read_frame(reader)
            if request is None:
                return
            response = await self._answer(request)
            async with asyncio.timeout(self._write_seconds_max):
                writer.write(len(response).to_bytes(PREFIX_BYTES, "big") + response)
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            writer.close()

    async def _answer(self, body: bytes) -> bytes:
        request_id = REQUEST_ID_UNREADABLE
        try:
            check_density(body)
            envelope = decode(body)
            request_id = envelope.request_id
            reply = await self._service.call(self._tenant, Request(envelope, validate(envelope)))
        except MemoreeError as error:
            reply = refusal(request_id, error)
        except Exception:
            log.exception("a framed request failed", extra={"request_id": request_id})
            reply = refusal(request_id, MemoreeError(Code.INTERNAL_ERROR, "the operation failed; see the log"))
        return encode(reply.envelope)

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


async def _read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The payload, or None when its announced length is over the limit: nothing of it is read."""
    size = int.from_bytes(await reader.readexactly(PREFIX_BYTES), "big")
    return await reader.readexactly(size) if size <= limits.FRAME_BYTES_MAX else None


def _locked(path: Path) -> int:
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise MemoreeError(Code.TRANSPORT_ERROR, f"another server owns the socket {path}") from None
    return lock


def _bound(path: Path) -> socket.socket:
    """A socket bound under the lock, never visible with another mode than 0600."""
    if path.is_socket():
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous_umask = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(previous_umask)
    return listener
