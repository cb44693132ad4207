"""SeaweedFS as a child process: the real S3 store of the stack profile, on loopback only (design §4, §11).

One directory holds everything: the objects, the generated identities, the chosen ports, the log. The child
runs under a launcher that ends it when this process ends, whatever ends this process. It counts as started
when an authenticated canary was written, read and deleted: its health endpoints promise nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import orjson

from memoree.binaries import find_binary
from memoree.errors import Code, MemoreeError, shown
from memoree.objects import ObjectStoreError
from memoree.objects.s3 import S3Settings, S3Store
from memoree.objects.selftest import prove_writable
from memoree.private_file import write_private
from memoree.stack.child import Child
from memoree.stack.ports import GRPC_OFFSET, LOOPBACK, are_free, free_ports

START_SECONDS_MAX = 30.0
"""An empty directory takes about 4 s, a restart as long."""

START_ATTEMPTS_MAX = 3
"""Each with other ports, in case somebody took one between our look and the bind."""

READY_POLL_SECONDS = 0.05
STOP_GRACE_SECONDS = 3.0
"""A clean stop takes 16 s and saves nothing: every acknowledged object is on disk already."""

SHELL_SECONDS_MAX = 15.0
REQUEST_SECONDS_MAX = 5.0
ACCESS_KEY_BYTES = 10
SECRET_KEY_BYTES = 30
VOLUMES_MAX = 100
VOLUME_MEGABYTES_MAX = 256

ADMIN = "admin"
SERVICE = "memoree"

_ADDRESS_IN_USE = "address already in use"


@dataclass(frozen=True, slots=True)
class Ports:
    """HTTP ports; each one's gRPC port lies `GRPC_OFFSET` above it."""

    master: int
    volume: int
    filer: int
    s3: int

    def all(self) -> tuple[int, ...]:
        return (self.master, self.volume, self.filer, self.s3)


@dataclass(frozen=True, slots=True)
class Headroom:
    """What is left: of the disk, and of the volumes that buckets grow into (none free: PUT answers 500)."""

    bytes_free: int
    bytes_all: int
    volumes_free: int
    volumes_max: int


class SeaweedServer:
    """One SeaweedFS in `directory` (created, 0700), serving one bucket.

    `start` raises `CONFIG_ERROR` with the last lines of the log. Ports and keys survive a restart.
    """

    def __init__(self, directory: Path, *, bucket: str = "memoree") -> None:
        self.directory = directory.absolute()
        self.bucket = bucket
        self.log_path = self.directory / "seaweedfs.log"
        self._ports: Ports | None = None
        self._child: Child | None = None
        self._lock: BinaryIO | None = None
        self._obstacle = "nothing listened"

    @property
    def is_alive(self) -> bool:
        return self._child is not None and self._child.is_alive

    @property
    def ports(self) -> Ports:
        assert self._ports is not None, "the ports are known once the server was started"
        return self._ports

    @property
    def settings(self) -> S3Settings:
        """For Memoree itself: may do anything in its bucket and nothing elsewhere."""
        return self._settings_of(SERVICE)

    @property
    def admin_settings(self) -> S3Settings:
        """May create buckets."""
        return self._settings_of(ADMIN)

    def attach(self) -> None:
        """Know the server that another process runs in this directory. Raises `CONFIG_ERROR` when none was started."""
        path = self.directory / "ports.json"
        try:
            self._ports = Ports(**orjson.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise MemoreeError(Code.CONFIG_ERROR, f"no SeaweedFS was started in {self.directory}") from error

    async def start(self) -> None:
        """Start the server and wait until the canary came back. Raises `CONFIG_ERROR`."""
        assert self._child is None, "the server is running; stop it first"
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._take_lock()
        try:
            self._write_identities()
            await self._start_on_free_ports()
        except BaseException:
            await self.kill()
            raise

    async def stop(self) -> None:
        """Ask the server to end, and end it after `STOP_GRACE_SECONDS`."""
        if self._child is not None:
            await self._child.terminate(STOP_GRACE_SECONDS)
        await self.kill()

    async def kill(self) -> None:
        """End the server at once (SIGKILL). Acknowledged objects are kept. Idempotent."""
        if self._child is not None:
            await self._child.kill()
            self._child = None
        if self._ports is not None:
            _remove_sockets(self._ports)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def wait(self) -> int:
        """Until the server ends by itself; returns its exit status (128 + n for signal n)."""
        assert self._child is not None, "the server is not running"
        return await self._child.wait()

    async def headroom(self) -> Headroom:
        """Raises `TRANSPORT_ERROR` when the server does not say."""
        try:
            disk = (await _get_json(f"http://{LOOPBACK}:{self.ports.volume}/status"))["DiskStatuses"][0]
            topology = (await _get_json(f"http://{LOOPBACK}:{self.ports.master}/dir/status"))["Topology"]
            return Headroom(int(disk["free"]), int(disk["all"]), int(topology["Free"]), int(topology["Max"]))
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise MemoreeError(
                Code.TRANSPORT_ERROR, f"SeaweedFS does not tell its headroom: {type(error).__name__}"
            ) from error

    def last_lines(self) -> list[str]:
        """The end of the log of the current or last run."""
        return self._child.last_lines() if self._child is not None else []

    # ---- starting

    async def _start_on_free_ports(self) -> None:
        for attempts_left in reversed(range(START_ATTEMPTS_MAX)):
            self._ports = self._choose_ports()
            self._child = await Child.start(
                _command(self._ports, self.directory),
                environment=_environment(self.directory),
                directory=self.directory,
                log_path=self.log_path,
            )
            try:
                await self._become_ready(self._child)
            except _EndedEarly:
                lines = self._child.last_lines()
                if attempts_left and any(_ADDRESS_IN_USE in line for line in lines):
                    await self._child.kill()
                    continue
                raise self._did_not_start("it ended by itself", lines) from None
            except TimeoutError:
                reason = f"it was not ready after {START_SECONDS_MAX:g} s ({self._obstacle})"
                raise self._did_not_start(reason, self._child.last_lines()) from None
            return

    async def _become_ready(self, child: Child) -> None:
        """Raises `TimeoutError` or `_EndedEarly`."""
        ready = asyncio.create_task(self._prepare_bucket())
        ended = asyncio.create_task(child.wait())
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                raise _EndedEarly
            ready.result()
        finally:
            ready.cancel()
            ended.cancel()
            await asyncio.gather(ready, ended, return_exceptions=True)

    async def _prepare_bucket(self) -> None:
        """The bucket exists, syncs every write to disk, and takes a canary from Memoree's own identity."""
        await _listening(self.ports.s3)
        async with S3Store(self.admin_settings) as admin:
            await self._until_it_works(admin.ensure_bucket)
        await self._until_it_works(self._ensure_fsync)
        async with S3Store(self.settings) as store:
            await self._until_it_works(lambda: prove_writable(store))

    async def _until_it_works(self, step: Callable[[], Awaitable[None]]) -> None:
        """The services behind the S3 port come up one after the other; the caller's deadline bounds this."""
        while True:
            try:
                return await step()
            except (ObjectStoreError, MemoreeError, httpx.HTTPError) as error:
                self._obstacle = str(error) or type(error).__name__
            await asyncio.sleep(READY_POLL_SECONDS)

    async def _ensure_fsync(self) -> None:
        """By default SeaweedFS answers before anything is on disk (200 PUTs, no fsync)."""
        if await self._is_fsync_on():
            return
        output = await self._shell(f"fs.configure -locationPrefix={self._location} -fsync=true -apply")
        if not await self._is_fsync_on():
            raise MemoreeError(
                Code.CONFIG_ERROR, f"SeaweedFS did not turn on fsync for {self._location}: {shown(output)}"
            )

    async def _is_fsync_on(self) -> bool:
        try:
            rules = await _get_json(f"http://{LOOPBACK}:{self.ports.filer}/etc/seaweedfs/filer.conf")
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.NOT_FOUND:  # nothing was ever configured
                return False
            raise
        return any(
            rule.get("locationPrefix") == self._location and rule.get("fsync") is True
            for rule in rules.get("locations", [])
        )

    @property
    def _location(self) -> str:
        return f"/buckets/{self.bucket}"

    async def _shell(self, command: str) -> str:
        """What SeaweedFS's own shell says to one command."""
        process = await asyncio.create_subprocess_exec(
            find_binary("weed"),
            "shell",
            f"-master={LOOPBACK}:{self.ports.master}",
            f"-filer={LOOPBACK}:{self.ports.filer}",
            env=_environment(self.directory),
            cwd=self.directory,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(SHELL_SECONDS_MAX):
                output, _ = await process.communicate(f"{command}\n".encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return output.decode(errors="replace")

    def _did_not_start(self, reason: str, lines: list[str]) -> MemoreeError:
        log = "\n".join(lines) or "(it logged nothing)"
        return MemoreeError(
            Code.CONFIG_ERROR,
            f"SeaweedFS did not start in {self.directory}: {reason}. The end of {self.log_path.name}:\n{log}",
        )

    # ---- what the directory keeps

    def _take_lock(self) -> None:
        lock = (self.directory / "lock").open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise MemoreeError(
                Code.CONFIG_ERROR, f"another process runs SeaweedFS in {self.directory} already"
            ) from None
        self._lock = lock

    def _choose_ports(self) -> Ports:
        """Those of the last start while they are free, so that addresses given out stay valid."""
        path = self.directory / "ports.json"
        with contextlib.suppress(OSError, ValueError, TypeError):
            last = Ports(**orjson.loads(path.read_bytes()))
            if are_free(last.all()):
                return last
        chosen = Ports(*free_ports(4))
        write_private(path, orjson.dumps(chosen))
        return chosen

    def _write_identities(self) -> None:
        """Random keys, made once and readable by this user only."""
        path = self.directory / "s3.json"
        if not path.exists():
            write_private(path, orjson.dumps(_identities(self.bucket), option=orjson.OPT_INDENT_2))
        path.chmod(0o600)
        if f"Write:{self.bucket}" not in self._identity(SERVICE)["actions"]:
            raise MemoreeError(
                Code.CONFIG_ERROR, f"the identities in {path} are for another bucket than {self.bucket!r}"
            )

    def _identity(self, name: str) -> dict[str, Any]:
        path = self.directory / "s3.json"
        try:
            identities: list[dict[str, Any]] = orjson.loads(path.read_bytes())["identities"]
            return {identity["name"]: identity for identity in identities}[name]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise MemoreeError(Code.CONFIG_ERROR, f"{path} holds no identity {name!r}") from error

    def _settings_of(self, name: str) -> S3Settings:
        keys = self._identity(name)["credentials"][0]
        return S3Settings(
            bucket=self.bucket,
            endpoint_url=f"http://{LOOPBACK}:{self.ports.s3}",
            access_key_id=keys["accessKey"],
            secret_access_key=keys["secretKey"],
        )


class _EndedEarly(Exception):
    """The child ended before it was ready."""


def _command(ports: Ports, directory: Path) -> list[str]:
    """SeaweedFS 4.48. Listeners nobody asked for (Iceberg, Lance) are off, and so is its telemetry."""
    data = directory / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    return [
        str(find_binary("weed")),
        "-logtostderr=true",
        "server",
        f"-dir={data}",
        f"-ip={LOOPBACK}",
        f"-ip.bind={LOOPBACK}",
        f"-master.port={ports.master}",
        f"-volume.port={ports.volume}",
        f"-filer.port={ports.filer}",
        f"-s3.port={ports.s3}",
        f"-master.volumeSizeLimitMB={VOLUME_MEGABYTES_MAX}",
        "-master.volumePreallocate=false",
        "-master.telemetry=false",
        "-master.electionTimeout=1s",
        f"-volume.max={VOLUMES_MAX}",
        "-volume.minFreeSpace=1GiB",
        "-volume.preStopSeconds=1",
        "-s3",
        f"-s3.config={directory / 's3.json'}",
        "-s3.iam=true",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.autoCreateBucket=false",
    ]


def _environment(directory: Path) -> dict[str, str]:
    """Nothing of ours: SeaweedFS takes settings from `WEED_*`, from the home and the working directory."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(directory),
        # Each bucket grows by seven volumes at once otherwise, and the fourth bucket finds none left.
        "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1",
    }


def _identities(bucket: str) -> dict[str, Any]:
    in_bucket = [f"{action}:{bucket}" for action in ("Read", "Write", "List", "Tagging")]
    return {
        "identities": [
            _new_identity(ADMIN, ["Admin", "Read", "List", "Tagging", "Write"]),
            _new_identity(SERVICE, in_bucket),
        ]
    }


def _new_identity(name: str, actions: Sequence[str]) -> dict[str, Any]:
    keys = {
        "accessKey": secrets.token_hex(ACCESS_KEY_BYTES).upper(),
        "secretKey": secrets.token_urlsafe(SECRET_KEY_BYTES),
    }
    return {"name": name, "credentials": [keys], "actions": list(actions)}


def _remove_sockets(ports: Ports) -> None:
    """SeaweedFS leaves these behind when killed; their place is not configurable for all of them."""
    for role, port in zip(("master", "volume", "filer", "s3"), ports.all(), strict=True):
        for name in (f"seaweedfs-{role}-{port}.sock", f"seaweedfs-{role}-grpc-{port + GRPC_OFFSET}.sock"):
            with contextlib.suppress(OSError):
                Path("/tmp", name).unlink()  # noqa: S108 - the place is SeaweedFS's choice


async def _listening(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(LOOPBACK, port)
            writer.close()
            return await writer.wait_closed()
        await asyncio.sleep(READY_POLL_SECONDS)


async def _get_json(url: str) -> Any:
    # No proxy from the environment: this is a child of ours, on loopback.
    async with httpx.AsyncClient(timeout=REQUEST_SECONDS_MAX, trust_env=False) as client:
        answer = await client.get(url)
        answer.raise_for_status()
        return orjson.loads(answer.content)
