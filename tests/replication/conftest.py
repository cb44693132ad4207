"""A database under Litestream, and a real SeaweedFS for what only S3 can show."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from memoree.binaries import find_binary
from memoree.replication import launcher
from memoree.replication.litestream import Credentials, Litestream, LitestreamSettings, ReplicaTarget
from memoree.replication.ltx import LtxName, parse_name

QUICK = LitestreamSettings(sync_interval_seconds=0.1)
WEED_SECONDS_MAX = 60.0
WEED_PORTS = range(12_000, 22_000)
"""gRPC listens 10 000 above each port, which must stay below the ephemeral range."""


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Return once the condition holds; fail the test after the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not true within {seconds} s")
        time.sleep(0.01)


def process_exists(pid: int) -> bool:
    """A zombie nobody has reaped yet counts as gone: it can do nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Database:
    """A writer's database in an epoch directory of its own: WAL, and checkpoints left to Litestream."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.path = directory / "tenant.db"
        self.connection = apsw.Connection(str(self.path))
        self.connection.execute("PRAGMA journal_mode=WAL").fetchall()
        self.connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
        self.connection.execute("CREATE TABLE note(id INTEGER PRIMARY KEY, body TEXT NOT NULL)")

    def commit(self, body: str = "a claim of ordinary length, with the words it needs") -> None:
        self.connection.execute("INSERT INTO note(body) VALUES (?)", (body,))

    @property
    def notes(self) -> int:
        return note_count(self.connection)


def note_count(connection: apsw.Connection) -> int:
    count = connection.execute("SELECT count(*) FROM note").get
    assert isinstance(count, int)
    return count


def notes_in(path: Path) -> int:
    """How many notes a restored file holds, after SQLite has checked all of it."""
    connection = apsw.Connection(f"file:{path}?immutable=1", apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        return note_count(connection)
    finally:
        connection.close()


def directory_files(root: Path) -> dict[LtxName, Path]:
    """The files of a directory replica: `ltx/<decimal level>/`, where S3 has `<hexadecimal level>/`."""
    names = {}
    for path in root.glob("ltx/*/*.ltx"):
        name = parse_name(f"{int(path.parent.name):04x}/{path.name}")
        assert name is not None
        names[name] = path
    return names


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "epoch")
    yield database
    database.connection.close()


@pytest.fixture
def replica_directory(tmp_path: Path) -> Path:
    return tmp_path / "replica"


@pytest.fixture
def target(replica_directory: Path) -> ReplicaTarget:
    return ReplicaTarget(replica_directory.as_uri())


def with_litestream(
    database: Database,
    target: ReplicaTarget,
    body: Callable[[Litestream], Coroutine[Any, Any, None]],
    settings: LitestreamSettings = QUICK,
) -> None:
    """Run `body` with a started child, which is killed afterwards whatever happened."""

    async def run() -> None:
        litestream = Litestream(database.path, target, settings)
        await litestream.start()
        try:
            await body(litestream)
        finally:
            await litestream.kill()

    asyncio.run(run())


@dataclass(frozen=True)
class Bucket:
    """A bucket of its own on a SeaweedFS shared by this worker's tests."""

    endpoint: str
    name: str
    credentials: Credentials
    client: Any

    def target(self, prefix: str) -> ReplicaTarget:
        return ReplicaTarget(f"s3://{self.name}/{prefix}", self.endpoint, credentials=self.credentials)

    def names(self, prefix: str) -> dict[LtxName, str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=f"{prefix}/")
        keys = [each["Key"] for page in pages for each in page.get("Contents", [])]
        return {name: key for key in keys if (name := parse_name(key)) is not None}

    def body(self, key: str) -> bytes:
        body = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        assert isinstance(body, bytes)
        return body


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    home = tmp_path_factory.mktemp("seaweedfs")
    credentials = Credentials("test-access", "test$secret")
    master, volume, filer, s3 = _free_ports(4)
    (home / "s3.json").write_text(json.dumps(_identities(credentials)))
    process, lifeline = _start_weed(home, master, volume, filer, s3)
    endpoint = f"http://127.0.0.1:{s3}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=credentials.access_key_id,
        aws_secret_access_key=credentials.secret_access_key,
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=10),
    )
    try:
        wait_until(lambda: _usable(client, "ltx"), WEED_SECONDS_MAX)
        yield Bucket(endpoint, "ltx", credentials, client)
    finally:
        client.close()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(lifeline)


def _start_weed(home: Path, master: int, volume: int, filer: int, s3: int) -> tuple[subprocess.Popen[bytes], int]:
    argv = [str(find_binary("weed")), "-logtostderr=true", "server", f"-dir={home}"]
    argv += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}", f"-volume.port={volume}"]
    argv += [f"-filer.port={filer}", f"-s3.port={s3}", "-master.volumeSizeLimitMB=64", "-volume.max=100"]
    argv += ["-volume.minFreeSpace=1", "-master.volumePreallocate=false", "-master.telemetry=false"]
    argv += ["-master.electionTimeout=1s", "-s3", f"-s3.config={home / 's3.json'}", "-s3.port.iceberg=0"]
    argv += ["-s3.port.lance=0", "-s3.autoCreateBucket=false"]
    watch, lifeline = os.pipe()
    with (home / "weed.log").open("wb") as log:
        process = subprocess.Popen(
            launcher.command_line(watch, argv),
            env={**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[watch],
            process_group=0,
        )
    os.close(watch)
    return process, lifeline


def _identities(credentials: Credentials) -> dict[str, Any]:
    keys = {"accessKey": credentials.access_key_id, "secretKey": credentials.secret_access_key}
    return {"identities": [{"name": "admin", "credentials": [keys], "actions": ["Admin", "Read", "List", "Write"]}]}


def _usable(client: Any, bucket: str) -> bool:
    """Health pages answer before writes succeed; a canary object does not."""
    with contextlib.suppress(BotoCoreError, ClientError):  # refused, or created by the attempt before
        client.create_bucket(Bucket=bucket)
    try:
        client.put_object(Bucket=bucket, Key="canary", Body=b"1")
        client.delete_object(Bucket=bucket, Key="canary")
    except (BotoCoreError, ClientError):
        return False
    return True


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    start = WEED_PORTS.start + os.getpid() % 5_000
    for port in [*range(start, WEED_PORTS.stop), *range(WEED_PORTS.start, start)]:
        if _is_free(port) and _is_free(port + 10_000):
            found.append(port)
        if len(found) == count:
            return found
    pytest.fail("no free ports for SeaweedFS")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
