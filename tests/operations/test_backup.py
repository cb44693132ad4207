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
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from memoree import limits
from memoree.assembly import embedded_service
from memoree.backup import directory, publish, staging
from memoree.data_directory import DATABASE_NAME
from memoree.embedded import EmbeddedService
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


TERMINATED_WHILE_STAGING = """
import os, signal, sys
from memoree.backup import directory
from memoree.cli.main import main

number, real_verify = signal.Signals[sys.argv.pop()], directory.verify

def verify(*arguments):
    os.kill(os.getpid(), number)
    return real_verify(*arguments)

directory.verify = verify
sys.exit(main())
"""


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


@pytest.mark.proves("machine-216")
@pytest.mark.fault_class(43)
def test_the_first_to_open_a_backup_has_nothing_to_change(client: Client, destination: Path) -> None:
    """So that whoever is killed doing it leaves it as it was."""
    client.put("x")
    client.ok("backup.create", {"destination": str(destination)})
    assert (destination / DATABASE_NAME).read_bytes()[18:20] == b"\2\2", "in WAL mode"
    assert {path.name for path in destination.iterdir()} == {DATABASE_NAME, "manifest.jsonl", "objects", "writer.lock"}


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


@pytest.mark.proves("machine-215")
@pytest.mark.fault_class(43)
def test_a_backup_killed_before_publication_leaves_no_destination_and_harms_nobody(
    client: Client, destination: Path
) -> None:
    mixed_mutations(client.ok)
    done = run_child(KILLED_AT_PUBLICATION, client, destination)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [abandoned] = left(destination)
    assert abandoned.name.startswith(staging.STAGING_PREFIX)
    client.ok("backup.create", {"destination": str(destination)})
    assert left(destination) == [destination], "what the killed one left was removed"
    assert client.ok("verify", {})["ok"]


@pytest.mark.proves("machine-215")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_command_that_is_told_to_end_leaves_nothing(
    client: Client, destination: Path, number: signal.Signals
) -> None:
    client.put("x")
    done = subprocess.run(
        [sys.executable, "-c", TERMINATED_WHILE_STAGING, "backup", "create", str(destination), number.name],
        env=os.environ | {"MEMOREE_DATA_DIR": str(client.data_dir)},
        capture_output=True,
        timeout=60,
        preexec_fn=partial(signal.signal, number, signal.SIG_DFL),  # which `nohup` has children ignore
    )
    assert done.returncode == 128 + number, done.stderr
    assert left(destination) == []


def test_what_others_are_making_is_let_alone(
    client: Client, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is everything that only looks like it."""
    notes = destination.parent / f"{staging.STAGING_PREFIX}notes"
    notes.write_text("mine")
    elsewhere = destination.parent.with_name("elsewhere")
    (elsewhere / "kept").mkdir(parents=True)
    link = destination.parent / f"{staging.STAGING_PREFIX}link"
    link.symlink_to(elsewhere)
    real_verify = directory.verify

    def verify(*arguments: Any) -> Any:
        monkeypatch.setattr(directory, "verify", real_verify)
        client.ok("backup.create", {"destination": str(destination.with_name("meanwhile"))})
        return real_verify(*arguments)

    monkeypatch.setattr(directory, "verify", verify)
    client.ok("backup.create", {"destination": str(destination)})
    assert sorted(left(destination)) == sorted([destination, destination.with_name("meanwhile"), notes, link])
    assert (elsewhere / "kept").is_dir()


@pytest.mark.parametrize("moment", ["open", "flock"])
def test_a_staging_that_is_removed_under_its_maker_is_made_again(
    destination: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Another backup may come between making a directory, opening it and locking it."""
    module = {"open": staging.os, "flock": staging.fcntl}[moment]
    real = getattr(module, moment)
    removed: list[Path] = []

    def remove_first(*arguments: Any) -> Any:
        if not removed:
            removed.extend(left(destination))
            removed[0].rmdir()
        return real(*arguments)

    monkeypatch.setattr(module, moment, remove_first)
    path, lock = staging.claim_staging(destination.parent)
    os.close(lock)
    assert left(destination) == [path]
    assert removed and path not in removed


# --- where a backup may be ----------------------------------------------------------------------------------------

INSIDE = [
    "one",
    f"{DATABASE_NAME}-journal",
    f"{DATABASE_NAME}-wal",
    f"{DATABASE_NAME}.before-schema-2",
    "objects/one",
    "new/one",
    "new/../one",
]


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("through", ["its name", "a link", "a detour"])
def test_no_backup_is_made_in_the_store_itself(client: Client, tmp_path: Path, name: str, through: str) -> None:
    client.put("x" * 20_000)
    before = sorted(client.data_dir.rglob("*"))
    if through == "a link":
        (tmp_path / "link").symlink_to(client.data_dir)
    store = {
        "its name": client.data_dir,
        "a link": tmp_path / "link",
        "a detour": tmp_path / "nowhere" / ".." / client.data_dir.name,
    }[through]
    assert client.refused("backup.create", {"destination": str(store / name)}) == "INVALID_REQUEST"
    assert sorted(client.data_dir.rglob("*")) == before
    assert not (tmp_path / "nowhere").exists()


def test_no_backup_takes_a_name_beside_a_database_that_lies_elsewhere(client: Client, tmp_path: Path) -> None:
    client.put("x")
    client.service.close_sync()
    database = client.data_dir / DATABASE_NAME
    (tmp_path / "disk").mkdir()
    database.rename(tmp_path / "disk" / "real.db")
    database.symlink_to(tmp_path / "disk" / "real.db")
    linked = Client(client.data_dir)
    for suffix in ("-journal", "-wal"):
        inside = str(tmp_path / "disk" / f"real.db{suffix}")
        assert linked.refused("backup.create", {"destination": inside}) == "INVALID_REQUEST"
    linked.ok("backup.create", {"destination": str(tmp_path / "disk" / "one")})
    linked.service.close_sync()


def test_directories_are_told_apart_by_what_they_are(client: Client, tmp_path: Path) -> None:
    """A disk that ignores case gives a directory many names; to the system all of them are the same one."""
    client.put("x")
    inside = client.data_dir.with_name("DATA") / "one"
    real_samefile = Path.samefile

    def samefile(path: Path, other: Path) -> bool:
        return real_samefile(Path(str(path).replace("/DATA", "/data")), other)

    with pytest.MonkeyPatch.context() as ignoring_case:
        ignoring_case.setattr(Path, "samefile", samefile)
        assert client.refused("backup.create", {"destination": str(inside)}) == "INVALID_REQUEST"
    assert not inside.parent.exists()


@pytest.mark.parametrize(
    "place", ["dangling/one", "file/one", "loop/one", "loop", "new/..", "/proc/one", "/proc/new/one"]
)
def test_a_place_where_no_directory_can_be_is_the_callers_mistake(
    client: Client, destination: Path, place: str
) -> None:
    client.put("x")
    around = destination.parent
    (around / "dangling").symlink_to("nowhere")
    (around / "file").write_text("mine")
    (around / "loop").symlink_to("loop")
    before = sorted(around.iterdir())
    assert client.refused("backup.create", {"destination": str(around / place)}) == "INVALID_REQUEST"
    assert sorted(around.iterdir()) == before


def test_a_parent_that_cannot_be_locked_is_a_matter_of_configuration(
    client: Client, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(staging.fcntl, "flock", refuse)
    assert client.refused("backup.create", {"destination": str(destination)}) == "CONFIG_ERROR"
    assert left(destination) == []


def test_a_disk_without_room_for_a_directory_is_not_the_callers_mistake(
    client: Client, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(directory, "claim_staging", full)
    assert client.refused("backup.create", {"destination": str(destination)}) == "INTERNAL_ERROR"


@pytest.mark.parametrize("bytes_max", [20_000, 300_000], ids=["the database", "a blob"])
def test_a_disk_that_cannot_hold_the_backup_is_told(client: Client, destination: Path, bytes_max: int) -> None:
    client.put("x" * 500_000)
    client.put("more")
    done = run_child(WITH_LITTLE_SPACE, client, destination, str(bytes_max))
    assert json.loads(done.stdout)["error"]["code"] == "INTERNAL_ERROR", done
    assert left(destination) == []
