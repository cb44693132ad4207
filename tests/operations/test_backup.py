"""What `backup.create` leaves on the disk: a whole store or nothing, whatever happens meanwhile."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from memoree import limits
from memoree.assembly import embedded_service
from memoree.backup import directory, publish
from memoree.embedded import DATABASE_NAME, EmbeddedService
from memoree.objects.filesystem import FilesystemStore
from mixed_mutations import LONG_TEXT, mixed_mutations

from .bench import LAB, Json

KILLED_AT_PUBLICATION = """
import os, signal, sys
from pathlib import Path
from memoree.assembly import embedded_service
from memoree.backup import directory

directory.rename_without_replacing = lambda source, target: os.kill(os.getpid(), signal.SIGKILL)
service = embedded_service(Path(sys.argv[1]))
service.call_bytes(sys.stdin.buffer.read())
"""
WITH_LITTLE_SPACE = """
import resource, sys
from pathlib import Path
from memoree.assembly import embedded_service

service = embedded_service(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
sys.stdout.buffer.write(service.call_bytes(sys.stdin.buffer.read()))
"""


class Client:
    """Requests to a service over a data directory of its own."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.service: EmbeddedService = embedded_service(data_dir)
        self._keys = 0

    def call(self, op: str, input: Json) -> Json:
        self._keys += 1
        envelope = {"request_id": "r", "op": op, "context": LAB, "input": input, "idempotency_key": str(self._keys)}
        answer: Json = json.loads(self.service.call_bytes(json.dumps(envelope).encode()))
        return answer

    def ok(self, op: str, input: Json) -> Json:
        answer = self.call(op, input)
        assert answer["ok"], answer
        result: Json = answer["result"]
        return result

    def refused(self, op: str, input: Json) -> str:
        answer = self.call(op, input)
        assert not answer["ok"], answer
        return str(answer["error"]["code"])

    def put(self, body: str) -> Json:
        return self.ok("artifact.put", {"kind": "note", "title": "t", "content": {"type": "text", "data": body}})


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    opened = Client(tmp_path / "data")
    yield opened
    opened.service.close_sync()


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups" / "one"


def left(destination: Path) -> list[Path]:
    return list(destination.parent.iterdir())


def run_child(code: str, client: Client, destination: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    envelope = {"request_id": "r", "op": "backup.create", "input": {"destination": str(destination)}}
    return subprocess.run(
        [sys.executable, "-c", code, str(client.data_dir), *arguments],
        input=json.dumps(envelope).encode(),
        capture_output=True,
        timeout=60,
    )


# --- what a backup is -------------------------------------------------------------------------------------------


def test_a_backup_is_private_and_holds_what_its_database_needs(client: Client, destination: Path) -> None:
    mixed_mutations(client.ok)
    FilesystemStore(client.data_dir / "objects").put_sync("tenants/local/blobs/b3/00/" + 64 * "0", b"nobody's")
    client.ok("backup.create", {"destination": str(destination)})
    manifest = [json.loads(line) for line in (destination / "manifest.jsonl").read_text().splitlines()]
    blobs = {path.name: path.stat().st_size for path in (destination / "objects").rglob("*") if path.is_file()}
    assert {entry["digest"]: entry["size"] for entry in manifest} == blobs
    assert list(blobs.values()) == [len(LONG_TEXT)]
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (destination, *destination.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def test_everything_is_flushed_before_it_has_its_name(
    client: Client, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed_mutations(client.ok)
    flushed: set[str] = set()
    real_fsync, real_rename = os.fsync, directory.rename_without_replacing

    def fsync(descriptor: int) -> None:
        real_fsync(descriptor)
        flushed.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    def rename(source: Path, target: Path) -> None:
        missing = {str(path) for path in (source, *source.rglob("*"))} - flushed
        assert missing <= {str(source / "writer.lock")}, "the lock file is flushed under the name it is staged with"
        flushed.clear()
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(directory, "rename_without_replacing", rename)
    client.ok("backup.create", {"destination": str(destination)})
    assert flushed == {str(destination.parent)}


@pytest.mark.fault_class(64)
def test_a_backup_answers_by_the_same_plans(client: Client, destination: Path) -> None:
    """Every statement of a search and of the lists, explained in the store and in its backup."""
    claim_id = mixed_mutations(client.ok)["reached"]["claim_id"]
    client.ok("backup.create", {"destination": str(destination)})
    plans = explained(client.data_dir, claim_id)
    assert len(plans) > 5
    assert any("relations_by" in step for plan in plans.values() for step in plan)
    assert explained(destination, claim_id) == plans


def explained(data_dir: Path, claim_id: str) -> dict[str, list[str]]:
    """The queries that a few requests run, each with its plan on the connection that ran it."""
    asked: dict[str, tuple[apsw.Connection, Any]] = {}

    def listen(db: apsw.Connection) -> None:
        def note(cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
            if sql.lstrip().startswith(("SELECT", "WITH")):
                asked[sql] = db, bindings
            return True

        db.exec_trace = note

    apsw.connection_hooks.append(listen)
    reader = Client(data_dir)
    try:
        reader.ok("search", {"query": "celadon glaze"})
        reader.ok("relation.list", {"entity_type": "claim", "entity_id": claim_id})
        reader.ok("conflict.list", {})
        return {
            sql: [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
            for sql, (db, bindings) in list(asked.items())
        }
    finally:
        apsw.connection_hooks.remove(listen)
        reader.service.close_sync()


def test_memory_does_not_grow_with_the_blobs(
    client: Client, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "VERIFY_PIECE_BYTES", 64 * 1024)
    data = "x" * limits.ARTIFACT_BYTES_MAX
    client.put(data)
    client.ok("verify", {})  # what is imported for it is not counted
    tracemalloc.start()
    try:
        client.ok("backup.create", {"destination": str(destination)})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(data) / 2


def test_writers_go_on_while_a_backup_is_made(
    client: Client, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put(LONG_TEXT)
    real_verify = directory.verify

    def verify(*arguments: Any) -> Any:
        with ThreadPoolExecutor(1) as writer:
            assert writer.submit(client.put, "written meanwhile").result(10)["commit_seq"] == 2
        return real_verify(*arguments)

    monkeypatch.setattr(directory, "verify", verify)
    assert client.ok("backup.create", {"destination": str(destination)})["commit_seq"] == 1
    copy = Client(destination)
    assert copy.ok("verify", {})["last_commit_seq"] == 1
    copy.service.close_sync()


# --- what goes wrong --------------------------------------------------------------------------------------------


def appear_as_directory(destination: Path) -> None:
    destination.mkdir()


def appear_as_file(destination: Path) -> None:
    destination.write_text("mine")


def appear_as_link(destination: Path) -> None:
    destination.symlink_to("nowhere")


@pytest.mark.proves("machine-214")
@pytest.mark.parametrize("appear", [appear_as_directory, appear_as_file, appear_as_link])
def test_what_appears_at_the_destination_meanwhile_is_never_replaced(
    client: Client, destination: Path, appear: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put("x")
    real_verify = directory.verify

    def verify(*arguments: Any) -> Any:
        appear(destination)
        return real_verify(*arguments)

    monkeypatch.setattr(directory, "verify", verify)
    assert client.refused("backup.create", {"destination": str(destination)}) == "CONFIG_ERROR"
    assert left(destination) == [destination]
    if destination.is_dir():
        assert left(destination / "inside") == []
    else:
        assert destination.is_symlink() or destination.read_text() == "mine"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, None])
def test_without_a_rename_that_replaces_nothing_there_is_no_backup(
    client: Client, destination: Path, number: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: bytes, target: bytes) -> int:
        assert number is not None
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(publish, "_system_rename", lambda: None if number is None else refuse)
    assert client.refused("backup.create", {"destination": str(destination)}) == "CONFIG_ERROR"
    assert left(destination) == []


@pytest.mark.proves("machine-215")
def test_a_damaged_database_is_not_backed_up(client: Client, destination: Path) -> None:
    client.put("x")
    db = apsw.Connection(str(client.data_dir / DATABASE_NAME))
    db.execute("DELETE FROM artifact_fts_docsize")
    db.close()
    assert client.refused("backup.create", {"destination": str(destination)}) == "INTEGRITY_ERROR"
    assert left(destination) == []


@pytest.mark.fault_class(43)
def test_a_backup_killed_before_publication_leaves_no_destination_and_harms_nobody(
    client: Client, destination: Path
) -> None:
    mixed_mutations(client.ok)
    done = run_child(KILLED_AT_PUBLICATION, client, destination)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [staging] = left(destination)
    assert staging.name.startswith(directory.STAGING_PREFIX)
    client.ok("backup.create", {"destination": str(destination)})
    assert client.ok("verify", {})["ok"]


@pytest.mark.parametrize("bytes_max", [20_000, 300_000], ids=["the database", "a blob"])
def test_a_disk_that_cannot_hold_the_backup_is_told(client: Client, destination: Path, bytes_max: int) -> None:
    client.put("x" * 500_000)
    client.put("more")
    done = run_child(WITH_LITTLE_SPACE, client, destination, str(bytes_max))
    assert json.loads(done.stdout)["error"]["code"] == "INTERNAL_ERROR", done
    assert left(destination) == []
