"""The embedded profile: threads, processes, and everything that can be wrong with a data directory."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apsw
import pytest

from memoree import embedded, ids
from memoree.assembly import embedded_service
from memoree.data_directory import DATABASE_NAME
from memoree.database import integrity, meta
from memoree.database.connection import open_writer
from memoree.embedded import EmbeddedService
from memoree.errors import Code, MemoreeError
from memoree.objects.filesystem import FilesystemStore
from memoree.operations import execute

CONTEXT = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
Json = dict[str, Any]


def request(op: str, input: Json, *, key: str | None = None) -> bytes:
    body = {"request_id": "r", "op": op, "idempotency_key": key or ids.new_ulid(), "context": CONTEXT, "input": input}
    return json.dumps(body).encode()


def call(service: EmbeddedService, op: str, input: Json, *, key: str | None = None) -> Json:
    answer: Json = json.loads(service.call_bytes(request(op, input, key=key)))
    return answer


def write(service: EmbeddedService, statement: str, *, key: str | None = None) -> Json:
    return call(service, "claim.assert", {"claim_type": "fact", "statement": statement}, key=key)


def put(service: EmbeddedService, text: str) -> Json:
    content = {"type": "text", "data": text}
    return call(service, "artifact.put", {"kind": "note", "title": "t", "content": content})


def error_of(answer: Json) -> str:
    assert not answer["ok"], answer
    return str(answer["error"]["code"])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[EmbeddedService]:
    service = embedded_service(tmp_path / "data")
    yield service
    service.close_sync()


def commits(data_dir: Path) -> list[int]:
    """Every commit number, after a look at the whole database."""
    db = open_writer(data_dir / DATABASE_NAME, replicated=False)
    try:
        assert db.execute("PRAGMA integrity_check").get == "ok"
        assert integrity.recompute(db) == meta.read(db).integrity
        return [number for (number,) in db.execute("SELECT commit_seq FROM events ORDER BY commit_seq")]
    finally:
        db.close()


# --- threads ----------------------------------------------------------------------------------------------------


@pytest.mark.fault_class(44)
def test_writes_of_many_threads_are_all_kept_without_a_gap(service: EmbeddedService, tmp_path: Path) -> None:
    with ThreadPoolExecutor(64) as threads:
        answers = list(threads.map(lambda number: write(service, f"s{number}"), range(64)))

    assert sorted(answer["commit_seq"] for answer in answers) == list(range(1, 65))
    assert commits(tmp_path / "data") == list(range(1, 65))
    batches = meta.read(service._db).batch
    assert batches < 64, "writes that wait together are committed together"


def test_the_same_request_from_many_threads_takes_effect_once(service: EmbeddedService) -> None:
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: write(service, "once", key="k"), range(64)))

    assert {answer["commit_seq"] for answer in answers} == {1}
    assert sum(answer["result"]["created"] for answer in answers) == 1


def test_a_thread_reads_its_own_write_while_others_write(service: EmbeddedService) -> None:
    def round_trip(number: int) -> bool:
        written = write(service, f"s{number}")
        return bool(call(service, "claim.get", {"claim_id": written["result"]["claim_id"]})["ok"])

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(round_trip, range(100)))


def test_a_readiness_probe_does_not_give_the_writers_lock_away(service: EmbeddedService, tmp_path: Path) -> None:
    lock = os.open(tmp_path / "data" / "writer.lock", os.O_RDWR)
    probing = threading.Event()
    taken: list[bool] = []

    def probe() -> None:
        probing.set()
        asyncio.run(service.readiness())

    with service._writing, service._exclusive():
        prober = threading.Thread(target=probe)
        prober.start()
        probing.wait(10)
        for _ in range(50):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                taken.append(True)
                fcntl.flock(lock, fcntl.LOCK_UN)
            except BlockingIOError:
                time.sleep(0.002)
    prober.join(10)
    os.close(lock)

    assert taken == []
    assert [check.ok for check in asyncio.run(service.readiness())] == [True]


@pytest.mark.fault_class(55)
def test_one_command_that_fails_takes_no_other_with_it(
    service: EmbeddedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide(tx: Any, call: Any) -> Any:
        if call.input.statement == "poison":
            raise ZeroDivisionError
        return execute.decide(tx, call)

    monkeypatch.setattr("memoree.writer.group_commit.decide", decide)
    with ThreadPoolExecutor(16) as threads:
        with service._writing:  # so that they all wait, and are tried as one batch
            answers = [
                threads.submit(write, service, "poison" if number == 7 else f"s{number}") for number in range(16)
            ]
            while len(service._line) < 16:
                time.sleep(0.001)
        found = [answer.result() for answer in answers]

    assert [answer["ok"] for answer in found].count(True) == 15
    assert error_of(found[7]) == "INTERNAL_ERROR"


# --- processes --------------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[4:]
from test_embedded import embedded_service, write
sys.stdin.readline()
service = embedded_service(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    answer = write(service, f"{sys.argv[2]}-{number}", key=f"{sys.argv[2]}-{number}")
    print(answer["commit_seq"] if answer["ok"] else answer["error"], flush=True)
service.close_sync()
"""


def writer_process(data_dir: Path, name: str, count: int) -> subprocess.Popen[str]:
    arguments = [str(data_dir), name, str(count), str(Path(__file__).parent)]
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.fault_class(44)
def test_processes_that_open_a_new_directory_together_share_it(tmp_path: Path) -> None:
    processes = [writer_process(tmp_path / "data", f"p{number}", 15) for number in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    numbers = [int(line) for process in processes for line in process.communicate(timeout=60)[0].split()]

    assert sorted(numbers) == list(range(1, 46))
    assert commits(tmp_path / "data") == list(range(1, 46))


@pytest.mark.fault_class(43)
def test_a_process_killed_in_the_middle_of_writing_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    acknowledged: list[int] = []
    for attempt in range(6):
        process = writer_process(data_dir, f"p{attempt}", 10_000)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        acknowledged += [int(process.stdout.readline()) for _ in range(3 + attempt * 7)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.communicate(timeout=30)[0].split()]
        found = commits(data_dir)
        assert found == list(range(1, len(found) + 1))
        assert set(acknowledged) <= set(found)


def test_a_process_that_never_lets_go_is_waited_for_and_then_named(
    service: EmbeddedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "LOCK_WAIT_SECONDS_MAX", 0.1)
    lock = os.open(tmp_path / "data" / "writer.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)

    answer = write(service, "blocked")
    assert error_of(answer) == "TRANSPORT_ERROR" and answer["error"]["retryable"]
    assert call(service, "doctor", {})["ok"], "reads need no lock"
    os.close(lock)

    assert write(service, "goes on")["commit_seq"] == 1


# --- the data directory -----------------------------------------------------------------------------------------


def test_everything_in_the_data_directory_is_private(service: EmbeddedService, tmp_path: Path) -> None:
    write(service, "s")
    put(service, "x" * 20_000)
    data_dir = tmp_path / "data"

    assert data_dir.stat().st_mode & 0o077 == 0
    assert [path for path in data_dir.iterdir() if path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("obstacle", ["file", "below a file"])
def test_a_data_directory_that_cannot_be_is_a_matter_of_configuration(tmp_path: Path, obstacle: str) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("")

    with pytest.raises(MemoreeError) as refused:
        embedded_service(blocked if obstacle == "file" else blocked / "data")
    assert refused.value.code is Code.CONFIG_ERROR


def test_a_database_that_cannot_be_opened_is_a_matter_of_configuration(tmp_path: Path) -> None:
    (tmp_path / DATABASE_NAME).mkdir()

    with pytest.raises(MemoreeError) as refused:
        embedded_service(tmp_path)
    assert refused.value.code is Code.CONFIG_ERROR
    assert not [fd for fd in Path("/proc/self/fd").iterdir() if fd.resolve() == tmp_path / "writer.lock"]


@pytest.mark.fault_class(43)
def test_a_damaged_database_is_said_to_be_damaged_and_left_alone(tmp_path: Path) -> None:
    garbage = b"no database, " * 1000
    (tmp_path / DATABASE_NAME).write_bytes(garbage)

    with pytest.raises(MemoreeError, match="damaged") as refused:
        embedded_service(tmp_path)
    assert refused.value.code is Code.INTEGRITY_ERROR
    assert (tmp_path / DATABASE_NAME).read_bytes() == garbage


@pytest.mark.fault_class(43)
@pytest.mark.fault_class(50)
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["missing", "empty"])
def test_a_store_whose_database_is_gone_is_never_taken_for_a_new_one(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    service = embedded_service(tmp_path / "data")
    assert write(service, "kept")["ok"]
    service.close_sync()
    for leftover in (tmp_path / "data").glob(f"{DATABASE_NAME}-*"):
        leftover.unlink()
    damage(tmp_path / "data" / DATABASE_NAME)
    with pytest.raises(MemoreeError, match="missing or empty") as refused:
        embedded_service(tmp_path / "data")
    assert refused.value.code is Code.INTEGRITY_ERROR


@pytest.mark.parametrize("name", ["writer.lock", DATABASE_NAME, f"{DATABASE_NAME}-wal"])
def test_garbage_appended_to_a_file_costs_nothing_that_was_acknowledged(tmp_path: Path, name: str) -> None:
    service = embedded_service(tmp_path)
    write(service, "first")
    if name.endswith("-wal"):  # it is there as long as somebody has the store open
        _append(tmp_path / name)
        service.close_sync()
    else:
        service.close_sync()
        _append(tmp_path / name)

    again = embedded_service(tmp_path)
    assert write(again, "second")["commit_seq"] == 2
    again.close_sync()


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\x00\xffgarbage" * 7)


@pytest.mark.fault_class(51)
def test_a_store_of_a_later_program_is_refused_and_not_one_byte_of_it_changes(tmp_path: Path) -> None:
    service = embedded_service(tmp_path)
    write(service, "of the future")
    service._db.execute("UPDATE meta SET schema_version = 999")
    service.close_sync()
    before = digests(tmp_path)

    with pytest.raises(MemoreeError, match="upgrade") as refused:
        embedded_service(tmp_path)

    assert refused.value.code is Code.CONFIG_ERROR
    assert digests(tmp_path) == before


def digests(directory: Path) -> dict[str, str]:
    files = [path for path in directory.rglob("*") if path.is_file() and not path.name.endswith(("-shm", "-wal"))]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


CREATE_AND_DIE = """
import os, signal, sys
from pathlib import Path
import apsw
from memoree.assembly import embedded_service
left = int(sys.argv[2])

def trace(cursor, sql, bindings):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return True

apsw.connection_hooks.append(lambda db: setattr(db, "exec_trace", trace))
embedded_service(Path(sys.argv[1])).close_sync()
"""


@pytest.mark.fault_class(52)
@pytest.mark.parametrize("statement", [1, 5, 9, 10, 15, 25, 40])
def test_a_process_killed_while_it_makes_the_schema_leaves_all_of_it_or_nothing(tmp_path: Path, statement: int) -> None:
    died = subprocess.run([sys.executable, "-c", CREATE_AND_DIE, str(tmp_path), str(statement)], check=False)
    assert died.returncode == -signal.SIGKILL, "the statement was never reached"

    service = embedded_service(tmp_path)
    assert write(service, "s")["commit_seq"] == 1
    service.close_sync()


def test_a_full_disk_is_told_and_nothing_of_the_write_is_kept(service: EmbeddedService) -> None:
    write(service, "first")
    pages = service._db.execute("PRAGMA page_count").get
    service._db.execute(f"PRAGMA max_page_count = {pages}")

    answer = write(service, "x" * 100_000)

    assert error_of(answer) == "INTERNAL_ERROR" and "disk is full" in answer["error"]["message"]
    service._db.execute("PRAGMA max_page_count = 1000000")
    assert write(service, "second")["commit_seq"] == 2


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (apsw.IOError("scripted"), "TRANSPORT_ERROR"),
        (apsw.BusyError("scripted"), "TRANSPORT_ERROR"),
        (apsw.CorruptError("scripted"), "INTEGRITY_ERROR"),
        (RuntimeError("scripted"), "INTERNAL_ERROR"),
    ],
    ids=repr,
)
def test_a_fault_says_nothing_was_stored_only_where_that_is_certain(
    service: EmbeddedService, monkeypatch: pytest.MonkeyPatch, fault: Exception, code: str
) -> None:
    def decide(*_: object) -> None:
        raise fault

    with monkeypatch.context() as broken:
        broken.setattr("memoree.writer.group_commit.decide", decide)
        answer = write(service, "s", key="k")
    assert error_of(answer) == code
    assert ("unknown" in answer["error"]["message"]) == isinstance(fault, apsw.IOError)
    assert write(service, "s", key="k")["commit_seq"] == 1


def test_a_blob_that_cannot_be_stored_is_a_retryable_failure(
    service: EmbeddedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("memoree.objects.files.Temporary.write", full)
        answer = put(service, "x" * 20_000)
    assert error_of(answer) == "TRANSPORT_ERROR"
    assert put(service, "x" * 20_000)["ok"]


@pytest.mark.fault_class(11)
def test_a_blob_that_vanished_is_asked_for_again(service: EmbeddedService, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(FilesystemStore, "exists_sync", lambda *_: False)
        answer = put(service, "x" * 20_000)
    assert answer["error"]["details"]["reason"] == "blob_missing" and answer["error"]["retryable"]


def test_writes_go_on_after_a_restore_gave_the_store_another_history(service: EmbeddedService) -> None:
    write(service, "before")
    service._db.execute("UPDATE meta SET history = history + 1")

    assert write(service, "after")["ok"]


# --- closing ----------------------------------------------------------------------------------------------------


def test_closing_twice_closes_nobody_elses_file_and_later_requests_are_refused(tmp_path: Path) -> None:
    service = embedded_service(tmp_path / "data")
    write(service, "s")
    service.close_sync()
    reused = os.open(tmp_path, os.O_RDONLY)
    service.close_sync()

    os.fstat(reused)
    os.close(reused)
    assert error_of(write(service, "late")) == "TRANSPORT_ERROR"
    assert error_of(call(service, "doctor", {})) == "TRANSPORT_ERROR"


def test_closing_waits_for_the_write_under_way(tmp_path: Path) -> None:
    service = embedded_service(tmp_path / "data")
    with ThreadPoolExecutor(16) as threads:
        answers = [threads.submit(write, service, f"s{number}") for number in range(100)]
        while not any(answer.done() for answer in answers):
            time.sleep(0.001)
        service.close_sync()
        found = [answer.result() for answer in answers]

    assert {error_of(answer) for answer in found if not answer["ok"]} <= {"TRANSPORT_ERROR"}
    assert len(commits(tmp_path / "data")) == sum(answer["ok"] for answer in found)


# --- numbers on the wire ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", ["18446744073709551616", "-9223372036854775809", "-9999999999999999999", "1" * 300, "-" + "9" * 40]
)
def test_an_integer_beyond_64_bits_is_refused_and_not_rounded(service: EmbeddedService, number: str) -> None:
    body = request("claim.assert", {"claim_type": "fact", "statement": "s", "confidence": 0}).replace(
        b'"confidence": 0', b'"confidence": ' + number.encode()
    )

    answer = json.loads(service.call_bytes(body))

    assert error_of(answer) == "INVALID_REQUEST"
    assert "64 bits" in answer["error"]["message"]


def test_long_digits_in_text_and_in_fractions_are_just_digits(service: EmbeddedService) -> None:
    digits = "9" * 60
    assert write(service, f"the number {digits}")["ok"]
    body = request("claim.assert", {"claim_type": "fact", "statement": "s", "confidence": 0}).replace(
        b'"confidence": 0', b'"confidence": 0.3333333333333333333333333'
    )
    assert json.loads(service.call_bytes(body))["ok"]


@pytest.mark.parametrize("number", ["18446744073709551615", "-9223372036854775808"])
def test_integers_of_64_bits_keep_every_digit(service: EmbeddedService, number: str) -> None:
    content = {"type": "text", "data": "x"}
    body = request("artifact.put", {"kind": "note", "title": "t", "content": content, "provenance": {"n": 0}}).replace(
        b'"n": 0', b'"n": ' + number.encode()
    )
    stored = json.loads(service.call_bytes(body))
    assert stored["ok"], stored

    answer = service.call_bytes(request("artifact.get", {"artifact_id": stored["result"]["artifact_id"]}))

    assert f'"n":{number}'.encode() in answer
