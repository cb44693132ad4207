"""A store whose process was killed between any two steps on the disk, while it opened the store and first wrote to it:
the next one opens it, and finds all of what was there (field faults 43 and 52)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from memoree.assembly import embedded_service
from memoree.data_directory import DATABASE_NAME
from memoree.embedded import EmbeddedService

OLDEST = Path(__file__).with_name("fixtures") / "schema-1"
CONTEXT = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
FIRST_STEPS = 18
"""Of these every one is tried: they are the ones in which a database changes its kind."""

KILLER = """
import json, os, shutil, signal, sys
from pathlib import Path

import apsw

import memoree.backup.before_migration  # once, and not in every child
from memoree.assembly import embedded_service

template, stores, request = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].encode()
first_steps, stride = int(sys.argv[4]), int(sys.argv[5])
left = 0


def step():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


class File(apsw.VFSFile):
    def xWrite(self, data, offset):
        step()
        super().xWrite(data, offset)

    def xSync(self, flags):
        step()
        super().xSync(flags)

    def xTruncate(self, size):
        step()
        super().xTruncate(size)

    def xLock(self, level):
        try:
            super().xLock(level)
        except apsw.IOError:  # SQLite tries to lock what it opened read-only, and passes over the failure
            raise apsw.BusyError from None


class Disk(apsw.VFS):
    def __init__(self):
        super().__init__("steps", "unix", makedefault=True)

    def xOpen(self, name, flags):
        step()
        return File("unix", name, flags)

    def xDelete(self, name, sync):
        step()
        super().xDelete(name, sync)


disk = Disk()
number, killed = 0, True
while killed:
    number += 1 if number < first_steps else stride
    store = stores / f"{number:04}"
    shutil.copytree(template, store)
    child = os.fork()
    if child == 0:
        left = number
        service = embedded_service(store)
        assert json.loads(service.call_bytes(request))["ok"]
        service.close_sync()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    killed = status == signal.SIGKILL
    assert killed or status == 0, status
"""
"""Opens a store again and again, killed before its first step on the disk, before its second, and so on until it
lives."""

Json = dict[str, Any]


def request(op: str, input: Json) -> str:
    return json.dumps({"request_id": "r", "op": op, "idempotency_key": "k", "context": CONTEXT, "input": input})


WRITE = request("claim.assert", {"claim_type": "fact", "statement": "the first of a new process"})


def call(service: EmbeddedService, body: str) -> Json:
    answer: Json = json.loads(service.call_bytes(body.encode()))
    assert answer["ok"], answer
    return answer


@contextmanager
def opened(data_dir: Path) -> Iterator[EmbeddedService]:
    service = embedded_service(data_dir)
    try:
        yield service
    finally:
        service.close_sync()


def new_directory(path: Path) -> Path:
    path.mkdir()
    return path


def old_store(path: Path) -> Path:
    return shutil.copytree(OLDEST, path)


def backup(path: Path) -> Path:
    store = path.with_name("store")
    with opened(shutil.copytree(OLDEST, store)) as service:
        call(service, request("backup.create", {"destination": str(path)}))
    return path


def put_back_by_hand(path: Path) -> Path:
    """A copy that others made: `VACUUM INTO` leaves a database that has to be brought into WAL mode."""
    store = backup(path)
    with closing(apsw.Connection(str(store / DATABASE_NAME))) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    return store


@pytest.mark.fault_class(43)
@pytest.mark.fault_class(52)
@pytest.mark.parametrize("stride", [90, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("template", [new_directory, old_store, backup, put_back_by_hand])
def test_killed_before_any_step_on_the_disk_a_store_opens_and_has_lost_nothing(
    tmp_path: Path, template: Callable[[Path], Path], stride: int
) -> None:
    origin = template(tmp_path / "origin")
    with opened(shutil.copytree(origin, tmp_path / "untouched")) as service:
        commits = call(service, request("verify", {}))["result"]["last_commit_seq"]
    stores = new_directory(tmp_path / "stores")
    arguments = [str(origin), str(stores), WRITE, str(FIRST_STEPS), str(stride)]
    subprocess.run([sys.executable, "-c", KILLER, *arguments], check=True, capture_output=True, timeout=100)
    killed = sorted(stores.iterdir())
    assert len(killed) > 3
    for store in killed:
        with opened(store) as service:
            verified = call(service, request("verify", {}))["result"]
            assert verified["issues"] == [], store.name
            assert verified["last_commit_seq"] in (commits, commits + 1), store.name
            assert call(service, WRITE)["commit_seq"] == commits + 1
    assert verified["last_commit_seq"] == commits + 1, "the last one lived"
