from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import httpx
import orjson
import pytest

from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectStoreError, StoreUnavailable
from memoree.objects.s3 import S3Settings, S3Store
from memoree.stack import child as child_module
from memoree.stack import ports as ports_module
from memoree.stack import seaweedfs as module
from memoree.stack.child import BoundedLog
from memoree.stack.ports import GRPC_OFFSET, LOOPBACK, PORT_MAX, are_free, free_ports
from memoree.stack.seaweedfs import Ports, SeaweedServer

pytestmark = pytest.mark.stack

DEADLINE_SECONDS = 30.0


@pytest.fixture
def server(seaweed_server: SeaweedServer) -> SeaweedServer:
    """The one that the whole test process shares: look, but do not stop it."""
    return seaweed_server


def weed_process(directory: Path) -> int:
    """The pid of the SeaweedFS that serves `directory`, found by its command line."""
    wanted = f"-dir={directory / 'data'}".encode()
    [found] = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if is_weed(path) and wanted in path.read_bytes().split(b"\0")
    ]
    return found


def is_weed(cmdline: Path) -> bool:
    try:
        return cmdline.read_bytes().split(b"\0")[0].endswith(b"/weed")
    except OSError:  # it ended meanwhile
        return False


def listeners(pid: int) -> set[tuple[str, int]]:
    """Address and port of every TCP socket on which the process listens."""
    inodes = {
        match[1]
        for descriptor in Path(f"/proc/{pid}/fd").iterdir()
        if (match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor)))  # noqa: PTH115 - no path
    }
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address, port = fields[1].split(":")
            if fields[3] == "0A" and fields[9] in inodes:
                raw = bytes.fromhex(address)
                found.add((socket.inet_ntoa(raw[::-1]) if table == "tcp" else address, int(port, 16)))
    return found


def test_it_listens_on_loopback_and_on_no_port_nobody_asked_for(server: SeaweedServer) -> None:
    expected = {*server.ports.all(), *(port + GRPC_OFFSET for port in server.ports.all())}
    assert listeners(weed_process(server.directory)) == {(LOOPBACK, port) for port in expected}
    assert max(server.ports.all()) <= PORT_MAX


def test_it_gets_nothing_of_our_environment_and_does_not_phone_home(server: SeaweedServer) -> None:
    pid = weed_process(server.directory)
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    names = {entry.split(b"=")[0] for entry in environment if entry}
    names.discard(b"LC_CTYPE")  # added by the interpreter that runs the launcher
    assert names == {b"PATH", b"HOME", b"WEED_MASTER_VOLUME_GROWTH_COPY_1"}
    assert b"-master.telemetry=false" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_every_write_is_synced_to_disk(server: SeaweedServer) -> None:
    answer = httpx.get(f"http://{LOOPBACK}:{server.ports.filer}/etc/seaweedfs/filer.conf", trust_env=False).json()
    [rule] = answer["locations"]
    assert (rule["locationPrefix"], rule["fsync"]) == (f"/buckets/{server.bucket}", True)


def test_keys_are_random_and_for_this_user_only(server: SeaweedServer) -> None:
    for name in ("s3.json", "ports.json", "seaweedfs.log"):
        assert stat.S_IMODE((server.directory / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
    identities = orjson.loads((server.directory / "s3.json").read_bytes())["identities"]
    secrets = [identity["credentials"][0]["secretKey"] for identity in identities]
    assert len(set(secrets)) == 2
    assert min(map(len, secrets)) >= 40
    log = server.log_path.read_text()
    assert not [secret for secret in secrets if secret in log]


def test_memoree_itself_can_do_nothing_outside_its_bucket(server: SeaweedServer) -> None:
    async def run() -> None:
        other = S3Settings("other", server.admin_settings.endpoint_url, *_keys(server.admin_settings))
        async with S3Store(other) as store:
            await store.ensure_bucket()
            await store.put("key", b"secret")
        mine = S3Settings("other", server.settings.endpoint_url, *_keys(server.settings))
        async with S3Store(mine) as store:
            for attempt in (store.get("key"), store.put("key", b""), store.delete("key")):
                with pytest.raises(ObjectStoreError, match="403"):
                    await attempt
        unknown = S3Settings("fresh", server.settings.endpoint_url, *_keys(server.settings))
        async with S3Store(unknown) as store:
            with pytest.raises(ObjectStoreError):
                await store.ensure_bucket()

    asyncio.run(run())


def _keys(settings: S3Settings) -> tuple[str, str | None, str | None]:
    return settings.region, settings.access_key_id, settings.secret_access_key


def test_a_fifth_bucket_still_finds_a_volume(server: SeaweedServer) -> None:
    async def run() -> None:
        for number in range(5):
            settings = S3Settings(f"bucket-{number}", server.admin_settings.endpoint_url, *_keys(server.admin_settings))
            async with S3Store(settings) as store:
                await store.ensure_bucket()
                await store.put("key", b"body")
        headroom = await server.headroom()
        assert 0 < headroom.bytes_free < headroom.bytes_all
        assert 0 < headroom.volumes_free < headroom.volumes_max == module.VOLUMES_MAX

    asyncio.run(run())


def test_one_directory_has_one_server(server: SeaweedServer) -> None:
    with pytest.raises(MemoreeError, match="another process runs SeaweedFS") as raised:
        asyncio.run(SeaweedServer(server.directory).start())
    assert raised.value.code is Code.CONFIG_ERROR
    assert server.is_alive


def test_acknowledged_objects_survive_kill_9_and_a_change_of_ports(tmp_path: Path) -> None:
    async def run() -> None:
        server = SeaweedServer(tmp_path)
        try:
            await server.start()
            first = server.ports
            acknowledged = await write_until_killed(server)
            assert await asyncio.wait_for(server.wait(), DEADLINE_SECONDS) == 128 + signal.SIGKILL
            await server.kill()

            with socket.create_server((LOOPBACK, first.master)):
                await server.start()
                assert server.ports.master != first.master
                await read_back(server, acknowledged)
            await server.stop()
            assert are_free(server.ports.all())
        finally:
            await server.kill()

    asyncio.run(run())


async def write_until_killed(server: SeaweedServer) -> dict[str, str]:
    """Key → ETag of every write that the server acknowledged before SIGKILL."""
    acknowledged: dict[str, str] = {}
    enough = asyncio.Event()

    async def write(store: S3Store, number: int) -> None:
        key = f"tenants/local/{number}"
        try:
            acknowledged[key] = await store.put(key, os.urandom(5_000), if_absent=True)
        except StoreUnavailable:
            return
        if len(acknowledged) == 50:
            enough.set()

    async with S3Store(server.settings) as store:
        writes = [asyncio.create_task(write(store, number)) for number in range(300)]
        await asyncio.wait_for(enough.wait(), DEADLINE_SECONDS)
        os.kill(weed_process(server.directory), signal.SIGKILL)
        await asyncio.gather(*writes)
    return acknowledged


async def read_back(server: SeaweedServer, acknowledged: dict[str, str]) -> None:
    async with S3Store(server.settings) as store:
        found = {info.key: info.etag async for info in store.list("tenants/local/")}
        assert acknowledged.items() <= found.items()
        for key, etag in acknowledged.items():
            stored = await store.get(key)
            assert stored is not None
            assert f'"{hashlib.md5(stored.body).hexdigest()}"' == etag
        await store.put("tenants/local/after", b"body")


def test_a_killed_server_leaves_no_sockets_in_the_temporary_directory(tmp_path: Path) -> None:
    ports = Ports(*free_ports(4))
    paths = [Path("/tmp", f"seaweedfs-s3-{ports.s3}.sock")]
    paths += [Path("/tmp", f"seaweedfs-filer-grpc-{ports.filer + GRPC_OFFSET}.sock")]
    for path in paths:
        path.touch()
    server = SeaweedServer(tmp_path)
    server._ports = ports
    asyncio.run(server.kill())
    assert not [path for path in paths if path.exists()]


PARENT = """
import asyncio, pathlib, sys, time
from memoree.stack.seaweedfs import SeaweedServer
async def run():
    server = SeaweedServer(pathlib.Path(sys.argv[1]))
    await server.start()
    print(server.ports.s3, flush=True)
    time.sleep(60)
asyncio.run(run())
"""


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, tmp_path], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        weed = weed_process(tmp_path)
        parent.kill()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while Path(f"/proc/{weed}/fd").exists() and not are_free([port]):
        assert time.monotonic() < deadline, "SeaweedFS outlived its parent"
        time.sleep(0.01)


def test_why_it_did_not_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "weed"
    program.write_text("#!/bin/sh\necho 'volume 7 is on fire'\nexit 3\n")
    program.chmod(0o700)
    monkeypatch.setattr(module, "find_binary", lambda name: program)
    server = SeaweedServer(tmp_path / "server")
    with pytest.raises(MemoreeError, match=r"it ended by itself.*\n.*volume 7 is on fire") as raised:
        asyncio.run(server.start())
    assert raised.value.code is Code.CONFIG_ERROR
    assert not server.is_alive


def test_a_server_that_never_gets_ready_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "weed"
    program.write_text("#!/bin/sh\necho waiting\nexec sleep 600\n")
    program.chmod(0o700)
    monkeypatch.setattr(module, "find_binary", lambda name: program)
    monkeypatch.setattr(module, "START_SECONDS_MAX", 0.5)
    server = SeaweedServer(tmp_path / "server")
    with pytest.raises(MemoreeError, match=r"not ready after 0.5 s \(nothing listened\)(.|\n)*waiting"):
        asyncio.run(server.start())
    assert not server.is_alive


def test_ports_lost_between_look_and_bind_are_chosen_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "weed"
    program.write_text("#!/bin/sh\necho $* >> runs\necho 'listen: bind: address already in use'\nexit 1\n")
    program.chmod(0o700)
    monkeypatch.setattr(module, "find_binary", lambda name: program)
    with pytest.raises(MemoreeError, match="address already in use"):
        asyncio.run(SeaweedServer(tmp_path / "server").start())
    assert len((tmp_path / "server" / "runs").read_text().splitlines()) == module.START_ATTEMPTS_MAX


def test_identities_of_another_bucket_are_not_taken_over(tmp_path: Path) -> None:
    server = SeaweedServer(tmp_path, bucket="one")
    server._write_identities()
    keys = (tmp_path / "s3.json").read_bytes()
    server._write_identities()
    assert (tmp_path / "s3.json").read_bytes() == keys
    with pytest.raises(MemoreeError, match="another bucket"):
        SeaweedServer(tmp_path, bucket="another")._write_identities()


def test_the_log_stays_within_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "LOG_BYTES_MAX", 10_000)
    log = BoundedLog(tmp_path / "seaweedfs.log")
    for number in range(1_000):
        log.write(f"line {number} {'x' * 90}\n".encode())
    log.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2 * (10_000 + 200)
    assert log.last_lines()[-1].startswith("line 999 ")
    assert len(log.last_lines()) == child_module.LAST_LINES_KEPT


def test_a_port_counts_as_free_only_with_its_grpc_port(monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    assert port + GRPC_OFFSET < 32_768
    with socket.create_server((LOOPBACK, port + GRPC_OFFSET)):
        assert not are_free([port])
    monkeypatch.setattr(ports_module, "_can_listen", lambda port: False)
    with pytest.raises(MemoreeError, match="free ports"):
        free_ports(1)
