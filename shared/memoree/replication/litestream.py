"""The Litestream child: one per tenant and epoch, driven over its own control socket.

Its settings, its life and its `/sync` (design §5.2, §5.3), and `restore`. Litestream has no fencing of its
own: who may run it on a prefix is decided by the epoch, elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from memoree.binaries import find_binary
from memoree.private_file import write_private
from memoree.replication import launcher
from memoree.replication.control_socket import ControlAnswer, ControlRefused, ControlSocket, ControlUnanswered
from memoree.replication.ltx import format_txid

START_SECONDS_MAX: Final = 15.0
START_POLL_SECONDS: Final = 0.01
STOP_SECONDS_MAX: Final = 20.0
REAP_SECONDS_MAX: Final = 10.0
RESTORE_SECONDS_MAX: Final = 900.0
SYNC_SECONDS_DEFAULT: Final = 10
ANSWER_GRACE_SECONDS: Final = 2.0
"""Added to the timeout that runs inside Litestream, so that its own answer arrives before ours gives up."""
LIST_SECONDS_MAX: Final = 2.0
SOCKET_NAME: Final = "litestream.sock"
"""In the database's directory, which is the child's working directory: the path it binds stays short."""
LOG_LINES_KEPT: Final = 20
LOG_LINE_BYTES_MAX: Final = 2000
LOG_READ_BYTES: Final = 65_536
ANSWER_SHOWN_CHARS_MAX: Final = 300

_NOT_RESTORABLE: Final = "no matching backup files available"
_FOREIGN_ENVIRONMENT: Final = (
    "AWS_CA_BUNDLE",  # Litestream 0.5.17 refuses to start with it; SSL_CERT_FILE does the same job
    "LITESTREAM_ACCESS_KEY_ID",
    "LITESTREAM_SECRET_ACCESS_KEY",
)
_CREDENTIAL_ENVIRONMENT: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
)

logger = logging.getLogger(__name__)


class LitestreamError(Exception):
    """Litestream did not do what it was asked; the message ends with what it said."""


class SyncAmbiguous(LitestreamError):
    """Whether the commit left this host is unknown: acknowledge nothing, commit nothing, call sync again."""


class LitestreamGone(LitestreamError):
    """There is no child that knows this database: `restart`, then sync again."""


class NotRestorable(LitestreamError):
    """The TXID is no restorable boundary of the prefix (any more)."""


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ReplicaTarget:
    """Where one epoch's LTX files go: `s3://bucket/prefix`, or `file:///directory`, in plain text.

    `endpoint` is the URL of an S3 that is not Amazon's. Without credentials, those of the environment apply.
    """

    url: str
    endpoint: str | None = None
    region: str = "us-east-1"
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        complete = bool(parts.path.strip("/")) and bool(parts.netloc) == (parts.scheme == "s3")
        if parts.scheme not in ("s3", "file") or not complete or {"?", "#"} & set(self.url):
            raise ValueError(f"not s3://bucket/prefix or file:///directory: {self.url!r}")

    @property
    def bucket(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def path(self) -> str:
        """The prefix inside the bucket without slashes at its ends, or the absolute directory."""
        path = urlsplit(self.url).path
        return path.strip("/") if self.bucket else path

    def environment(self) -> dict[str, str]:
        """This process's environment as the child may see it, with the credentials in it."""
        environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN_ENVIRONMENT}
        if self.credentials is None:
            return environment
        for name in _CREDENTIAL_ENVIRONMENT:
            environment.pop(name, None)
        environment["AWS_ACCESS_KEY_ID"] = self.credentials.access_key_id
        environment["AWS_SECRET_ACCESS_KEY"] = self.credentials.secret_access_key
        if self.credentials.session_token is not None:
            environment["AWS_SESSION_TOKEN"] = self.credentials.session_token
        return environment


@dataclass(frozen=True, slots=True)
class LitestreamSettings:
    """Intervals in seconds. `level_seconds` are the compaction intervals of levels 1, 2, 3, …

    `sync_interval_seconds` paces only what Litestream uploads unasked. `Litestream.sync` does not wait for it, and is
    one PUT and no LIST; between 1 s and 60 s it makes no difference (measured), and at 0.1 s both get in their way.
    Restore points finer than level 1 exist for `l0_retention_seconds`, any for `snapshot_retention_seconds`.
    """

    sync_interval_seconds: float = 1
    l0_retention_seconds: float = 3600
    l0_retention_check_seconds: float = 15
    snapshot_interval_seconds: float = 24 * 3600
    snapshot_retention_seconds: float = 72 * 3600
    level_seconds: tuple[float, ...] = (30, 300, 3600)


@dataclass(frozen=True, slots=True)
class Synced:
    """Everything committed before the call is in the replica, which is at `replicated_txid` ≥ `txid`."""

    txid: int
    replicated_txid: int


class Litestream:
    """The child that replicates one database file into one prefix. Not for use by two tasks at a time.

    The directory of the database is the epoch's own: Litestream keeps its state beside the file, and the
    configuration and the socket live there too.
    """

    def __init__(self, database: Path, target: ReplicaTarget, settings: LitestreamSettings | None = None) -> None:
        self._database = database.absolute()
        self._target = target
        self._settings = settings if settings is not None else LitestreamSettings()
        self._child: _Child | None = None
        self._control: ControlSocket | None = None

    @property
    def is_alive(self) -> bool:
        return self._child is not None and self._child.is_alive

    @property
    def pid(self) -> int | None:
        """Of the launcher, which leads the process group of the child."""
        return self._child.pid if self._child is not None else None

    async def start(self) -> None:
        """Start the child and wait until it watches the database. Raises `LitestreamGone` if it does not."""
        if self._child is not None:
            raise RuntimeError("the Litestream child was started before and not stopped")
        configuration = self._database.with_name("litestream.yml")
        argv = [str(find_binary("litestream")), "replicate", "-no-expand-env", "-config", str(configuration)]
        environment = self._target.environment()
        try:
            text = render_configuration(self._database, self._target, self._settings)
            await asyncio.to_thread(write_private, configuration, text.encode())
            self._child = _Child(argv, environment, self._database.parent, log_level=logging.WARNING)
            self._control = ControlSocket(self._database.with_name(SOCKET_NAME))
            await self._wait_until_watching(self._child, self._control)
        except BaseException:
            await self.kill()
            raise

    async def sync(self, timeout_seconds: int = SYNC_SECONDS_DEFAULT) -> Synced:
        """Return once every commit made before this call is in the replica.

        The first sync of a prefix uploads the whole database. Raises `SyncAmbiguous` (call again) or
        `LitestreamGone` (`restart`, then call again); in neither case is anything known to be replicated.
        """
        if self._control is None or not self.is_alive:
            raise LitestreamGone(f"the Litestream child is not running{self._last_words()}")
        request = orjson.dumps({"path": str(self._database), "wait": True, "timeout": timeout_seconds})
        patience_seconds = timeout_seconds + ANSWER_GRACE_SECONDS
        try:
            answer = await self._control.request("POST", "/sync", request, timeout_seconds=patience_seconds)
        except ControlRefused as error:
            raise LitestreamGone(f"the control socket refused: {error}{self._last_words()}") from error
        except ControlUnanswered as error:
            raise SyncAmbiguous(f"no answer to /sync: {error}{self._last_words()}") from error
        return _read_sync(answer)

    async def stop(self) -> bool:
        """End cleanly, which uploads once more; true if it did. After `STOP_SECONDS_MAX` it is killed."""
        if self._child is None:
            return True
        status = await self._child.terminate(STOP_SECONDS_MAX)
        await self.kill()
        return status == 0

    async def kill(self) -> None:
        """SIGKILL the child before the first await, and reap it: nothing more is uploaded. Idempotent; one that was
        cancelled is finished by the next."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if (child := self._child) is not None:
            await child.kill()
            self._child = None

    async def restart(self) -> None:
        """Reap the child and start it again on the same directory and prefix."""
        await self.kill()
        await self.start()

    async def _wait_until_watching(self, child: _Child, control: ControlSocket) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while child.is_alive and time.monotonic() < deadline:
            if await _watches(control, self._database):
                return
            await asyncio.sleep(START_POLL_SECONDS)
        reason = "took too long to start" if child.is_alive else "ended while starting"
        raise LitestreamGone(f"Litestream {reason}{self._last_words()}")

    def _last_words(self) -> str:
        return self._child.last_words() if self._child is not None else ""


async def restore(
    target: ReplicaTarget, txid: int, output: Path, *, timeout_seconds: float = RESTORE_SECONDS_MAX
) -> None:
    """Write the database as it was at `txid` to the new file `output`; nothing is left there on failure.

    `txid` must be one of `ltx.restorable_boundaries`. Raises `NotRestorable` if it is none (it may have been
    one when the prefix was listed), `FileExistsError`, and `LitestreamError` for everything else.
    """
    if await asyncio.to_thread(output.exists):
        raise FileExistsError(output)
    # Named by a configuration, not by a URL: of URLs Litestream 0.5.17 decodes no escapes.
    configuration = output.with_name(output.name + ".yml")
    argv = [str(find_binary("litestream")), "restore", "-no-expand-env", "-config", str(configuration)]
    argv += ["-txid", format_txid(txid), "-o", str(output), str(output)]
    status: int | None = None
    try:
        await asyncio.to_thread(write_private, configuration, render_databases(output, target).encode())
        child = _Child(argv, target.environment(), output.parent, log_level=logging.DEBUG)
        try:
            status = await child.wait(timeout_seconds)
        finally:
            await child.kill()
    finally:
        for suffix in (".yml",) if status == 0 else (".yml", "", ".tmp", "-wal", "-shm"):
            output.with_name(output.name + suffix).unlink(missing_ok=True)
    if status is None:
        raise LitestreamError(f"restoring TXID {txid} took more than {timeout_seconds} s{child.last_words()}")
    if status != 0:
        kind = NotRestorable if _NOT_RESTORABLE in child.last_words() else LitestreamError
        raise kind(f"restoring TXID {txid} failed with status {status}{child.last_words()}")


def render_configuration(database: Path, target: ReplicaTarget, settings: LitestreamSettings) -> str:
    """The YAML of a child. It holds no secret: credentials travel in the child's environment."""
    levels = ", ".join(f"{{interval: {_duration(seconds)}}}" for seconds in settings.level_seconds)
    snapshot_interval = _duration(settings.snapshot_interval_seconds)
    snapshot_retention = _duration(settings.snapshot_retention_seconds)
    sync_interval = f"sync-interval: {_duration(settings.sync_interval_seconds)}"
    return f"""\
logging: {{level: warn, type: text, stderr: true}}
socket: {{enabled: true, path: {SOCKET_NAME}, permissions: 0600}}
snapshot: {{interval: {snapshot_interval}, retention: {snapshot_retention}}}
l0-retention: {_duration(settings.l0_retention_seconds)}
l0-retention-check-interval: {_duration(settings.l0_retention_check_seconds)}
levels: [{levels}]
{render_databases(database, target, sync_interval)}"""


def render_databases(database: Path, target: ReplicaTarget, *options: str) -> str:
    """The part of the YAML that says which file is replicated where."""
    if target.bucket:
        where = ["type: s3", f"bucket: {_quoted(target.bucket)}", f"region: {_quoted(target.region)}"]
        if target.endpoint is not None:
            where += [f"endpoint: {_quoted(target.endpoint)}", "force-path-style: true"]
    else:
        where = ["type: file"]
    replica = ", ".join([*where, f"path: {_quoted(target.path)}", *options])
    return f"""\
dbs:
  - path: {_quoted(str(database))}
    replica: {{{replica}}}
"""


def _quoted(text: str) -> str:
    """A YAML scalar in which only plain ASCII stands for itself. Raises `ValueError` for surrogates."""
    text.encode()
    plain = (c if " " <= c <= "~" and c not in '"\\' else f"\\U{ord(c):08X}" for c in text)
    return f'"{"".join(plain)}"'


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


async def _watches(control: ControlSocket, database: Path) -> bool:
    try:
        answer = await control.request("GET", "/list", timeout_seconds=LIST_SECONDS_MAX)
        listed = orjson.loads(answer.body)["databases"]
    except (ControlRefused, ControlUnanswered, ValueError, KeyError, TypeError):
        return False
    return any(each["path"] == str(database) and each["status"] != "stopped" for each in listed)


def _read_sync(answer: ControlAnswer) -> Synced:
    """`no_change` answers carry equal TXIDs as well (measured, also right after a restart)."""
    shown = answer.body.decode(errors="replace")[:ANSWER_SHOWN_CHARS_MAX]
    if answer.status == HTTPStatus.NOT_FOUND:
        raise LitestreamGone(f"Litestream does not know the database: {shown}")
    if answer.status != HTTPStatus.OK:
        raise SyncAmbiguous(f"/sync answered {answer.status}: {shown}")
    try:
        told: dict[str, Any] = orjson.loads(answer.body)
        status, synced = told["status"], Synced(int(told["txid"]), int(told["replicated_txid"]))
    except (ValueError, KeyError, TypeError) as error:
        raise SyncAmbiguous(f"/sync answered something else: {shown}") from error
    if status not in ("synced", "no_change") or not 1 <= synced.txid <= synced.replicated_txid:
        raise SyncAmbiguous(f"/sync did not reach the replica: {shown}")
    return synced


class _Child:
    """A program under the launcher, started at once.

    Its output ends when every process of its group has closed all its files, connections to the store included.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], directory: Path, *, log_level: int) -> None:
        self._output = _Output(directory.name, log_level)
        watch, lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(
                launcher.command_line(watch, argv),
                env=dict(environment),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=self._output.writing,
                stderr=self._output.writing,
                pass_fds=[watch],
                process_group=0,
            )
        except BaseException:
            os.close(lifeline)
            raise
        finally:
            os.close(watch)
            self._output.read_until_end()
        self._lifeline: int | None = lifeline

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Without reaping: until `kill` reaps it, the process id, and so the group's id, stays taken."""
        if self._process.returncode is not None:
            return False
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    async def wait(self, timeout_seconds: float) -> int | None:
        """The exit status, or `None` if it still runs by then."""
        try:
            await asyncio.wait_for(self._output.ended.wait(), timeout_seconds)
        except TimeoutError:
            return None
        return await asyncio.to_thread(self._process.wait, REAP_SECONDS_MAX)

    async def terminate(self, timeout_seconds: float) -> int | None:
        """Ask it to end; the exit status, or `None` if it still runs by then."""
        if self.is_alive:
            self._process.send_signal(signal.SIGTERM)
        return await self.wait(timeout_seconds)

    async def kill(self) -> None:
        """SIGKILL launcher and child in one call, before the first await; then reap. Idempotent."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody but a zombie is left
                os.killpg(self.pid, signal.SIGKILL)
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        await asyncio.wait_for(self._output.ended.wait(), REAP_SECONDS_MAX)
        await asyncio.to_thread(self._process.wait, REAP_SECONDS_MAX)

    def last_words(self) -> str:
        return self._output.last_words()


class _Output:
    """A pipe for what a child prints: logged line by line, the last lines kept for messages."""

    def __init__(self, source: str, log_level: int) -> None:
        self.ended = asyncio.Event()
        self._source = source
        self._log_level = log_level
        self._reading, self.writing = os.pipe()
        self._lines: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self._partial = b""

    def read_until_end(self) -> None:
        """Once the child has its copy of `writing`, give up ours: the pipe then ends when the child does."""
        os.close(self.writing)
        os.set_blocking(self._reading, False)
        asyncio.get_running_loop().add_reader(self._reading, self._read)

    def last_words(self) -> str:
        return "".join(f"\n  {line}" for line in self._lines)

    def _read(self) -> None:
        data = os.read(self._reading, LOG_READ_BYTES)
        *lines, partial = (self._partial + data).split(b"\n")
        self._partial = partial[:LOG_LINE_BYTES_MAX]
        for line in lines:
            self._keep(line)
        if not data:
            self._keep(self._partial)
            asyncio.get_running_loop().remove_reader(self._reading)
            os.close(self._reading)
            self.ended.set()

    def _keep(self, line: bytes) -> None:
        if text := line[:LOG_LINE_BYTES_MAX].decode(errors="replace").strip():
            self._lines.append(text)
            logger.log(self._log_level, "%s: %s", self._source, text)
