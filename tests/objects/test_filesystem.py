from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memoree.objects import ObjectMissing, ObjectStoreError, PreconditionFailed, StoreUnavailable
from memoree.objects import filesystem as module
from memoree.objects.filesystem import FilesystemStore

DEADLINE_SECONDS = 30.0


@pytest.fixture
def store(tmp_path: Path) -> FilesystemStore:
    return FilesystemStore(tmp_path / "deep" / "objects")


def path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def test_the_synchronous_methods_need_no_event_loop_and_do_not_import_one(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from memoree.objects.blobs import LocalBlobStore\n"
        "from memoree.objects.filesystem import FilesystemStore\n"
        "store = FilesystemStore(pathlib.Path(sys.argv[1]))\n"
        "blobs = LocalBlobStore(store, 'local')\n"
        "assert blobs.read(blobs.put(b'body')) == b'body'\n"
        "assert [info.key for info in store.list_sync('')]\n"
        "assert 'asyncio' not in sys.modules, 'asyncio was imported'\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "objects"], check=True, timeout=DEADLINE_SECONDS)


def test_existence_is_told_without_reading(store: FilesystemStore) -> None:
    assert not store.exists_sync("a/key")
    store.put_sync("a/key", b"body")
    assert store.exists_sync("a/key")
    assert not store.exists_sync("a")


def test_only_this_user_can_read_anything(store: FilesystemStore) -> None:
    previous = os.umask(0)
    try:
        store.put_sync("tenants/local/key", b"body")
    finally:
        os.umask(previous)
    found = [store.root, *store.root.rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {0o600}


def test_an_object_is_on_disk_before_it_has_its_name_and_the_name_before_the_answer(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_sync("a/other", b"")
    steps: list[str] = []
    real_fsync, real_rename, real_link = os.fsync, os.rename, os.link

    def fsync(descriptor: int) -> None:
        steps.append(f"fsync {path_of(descriptor).removeprefix(f'{store.root}/')}")
        real_fsync(descriptor)

    def rename(source: str, target: str, **directories: int) -> None:
        steps.append(f"name {target}")
        real_rename(source, target, **directories)

    def link(source: str, target: str, **options: int) -> None:
        steps.append(f"name {target}")
        real_link(source, target, **options)

    monkeypatch.setattr(module.os, "fsync", fsync)
    monkeypatch.setattr(module.os, "rename", rename)
    monkeypatch.setattr(module.os, "link", link)
    store.put_sync("a/key", b"body")
    store.put_sync("a/new", b"body", if_absent=True)
    store.delete_sync("a/key")

    temporary = [step for step in steps if "temporary" in step]
    assert len(temporary) == 2
    assert steps == [temporary[0], "name key", "fsync a", temporary[1], "name new", "fsync a", "fsync a"]


def test_a_new_directory_is_made_durable_in_its_parent(store: FilesystemStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put_sync("other", b"")
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(path_of(descriptor))
        real(descriptor)

    monkeypatch.setattr(module.os, "fsync", fsync)
    store.put_sync("a/b/key", b"body")
    assert {str(store.root), f"{store.root}/a", f"{store.root}/a/b"} <= set(synced)


def test_no_link_inside_the_directory_leads_out_of_it(store: FilesystemStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.put_sync("real", b"body")
    (store.root / "directory").symlink_to(outside)
    (store.root / "file").symlink_to(outside / "secret")
    (store.root / "dangling").symlink_to(outside / "created")

    for key in ("directory/secret", "file", "dangling"):
        with pytest.raises(ObjectStoreError):
            store.get_sync(key)
        with pytest.raises(ObjectStoreError):
            store.delete_sync(key)
    with pytest.raises(ObjectStoreError):
        store.put_sync("directory/new", b"body")
    with pytest.raises(PreconditionFailed):
        store.put_sync("dangling", b"body", if_absent=True)
    with pytest.raises(ObjectStoreError):
        store.put_sync("file", b"body", if_match="0" * 64)
    assert [info.key for info in store.list_sync("")] == ["real"]
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"

    store.put_sync("file", b"body")  # replaces the link, not what it points to
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_fifo_is_refused_and_not_waited_for(store: FilesystemStore) -> None:
    store.put_sync("key", b"")
    os.mkfifo(store.root / "fifo")
    with pytest.raises(ObjectStoreError, match="not a plain file"):
        store.get_sync("fifo")


def test_a_name_is_either_an_object_or_a_directory(store: FilesystemStore) -> None:
    store.put_sync("a", b"body")
    store.put_sync("b/child", b"body")
    with pytest.raises(ObjectStoreError, match="no place"):
        store.put_sync("a/child", b"body")
    with pytest.raises(ObjectStoreError, match="no place"):
        store.put_sync("b", b"body")
    with pytest.raises(ObjectStoreError, match="no place"):
        store.put_sync("c" * 300, b"body")
    assert [info.key for info in store.list_sync("")] == ["a", "b/child"]


def test_the_stores_own_files_are_no_objects(store: FilesystemStore) -> None:
    store.put_sync("key", b"body")
    for key in (".store/locks/00", ".store", ".STORE/temporary/x"):
        with pytest.raises(ValueError, match="the store's own"):
            store.get_sync(key)
    assert [info.key for info in store.list_sync("")] == ["key"]


def test_files_that_are_not_ours_do_not_spoil_a_listing(store: FilesystemStore) -> None:
    store.put_sync("key", b"body")
    Path(os.fsdecode(os.fsencode(store.root) + b"/\xff\xfe")).write_bytes(b"")
    assert [info.key for info in store.list_sync("")] == ["key"]


def test_what_a_crash_left_is_removed_after_a_day_and_not_before(tmp_path: Path) -> None:
    FilesystemStore(tmp_path).put_sync("key", b"body")
    temporary = tmp_path / ".store" / "temporary"
    assert list(temporary.iterdir()) == []
    (temporary / "young").write_bytes(b"half")
    (temporary / "old").write_bytes(b"half")
    long_ago = time.time() - module.TEMPORARY_AGE_SECONDS_MAX - 60
    os.utime(temporary / "old", (long_ago, long_ago))

    FilesystemStore(tmp_path).put_sync("key", b"body")
    assert [path.name for path in temporary.iterdir()] == ["young"]


@pytest.mark.proves("operations-13")
def test_what_a_process_is_writing_is_told_from_what_a_killed_one_left(store: FilesystemStore) -> None:
    """Also when the file that is written is another name of one that is there."""
    store.put_sync("a/key", b"body")
    temporary = store.root / ".store" / "temporary"
    (temporary / "half").write_bytes(b"half")
    with store._temporary() as written, store._temporary() as copied, store._directory(["a"]) as directory:
        written.write(b"whole")
        copied.link_from(directory, "key")
        assert store.remove_abandoned_sync() == 2
        assert {path.name for path in temporary.iterdir()} == {written.name, copied.name}
    assert store.remove_abandoned_sync() == 0


def test_a_failed_write_leaves_nothing_behind(store: FilesystemStore) -> None:
    etag = store.put_sync("key", b"first")
    with pytest.raises(PreconditionFailed):
        store.put_sync("key", b"second", if_absent=True)
    with pytest.raises(PreconditionFailed):
        store.put_sync("key", b"second", if_match="0" * 64)
    assert store.head_sync("key").etag == etag
    assert list((store.root / ".store" / "temporary").iterdir()) == []


def test_a_full_disk_is_an_outage_and_not_a_lost_object(
    store: FilesystemStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_sync("key", b"first")

    def full(descriptor: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module.os, "write", full)
        with pytest.raises(StoreUnavailable, match="No space left"):
            store.put_sync("key", b"second")
    stored = store.get_sync("key")
    assert stored is not None
    assert stored.body == b"first"
    assert list((store.root / ".store" / "temporary").iterdir()) == []


def test_a_directory_that_vanished_is_an_outage_for_writers(store: FilesystemStore) -> None:
    store.put_sync("key", b"body")
    store.root.rename(store.root.with_name("moved"))
    with pytest.raises(StoreUnavailable):
        store.put_sync("key", b"body")
    with pytest.raises(ObjectMissing):
        store.get_sync("key")


def test_a_lock_nobody_releases_is_an_outage(store: FilesystemStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_WAIT_SECONDS_MAX", 0.05)
    store.put_sync("key", b"body")
    with store._locked("key"), pytest.raises(StoreUnavailable, match="locked"):
        store.put_sync("key", b"other")


INCREMENT = """
import sys, pathlib
from memoree.objects import PreconditionFailed
from memoree.objects.filesystem import FilesystemStore
store = FilesystemStore(pathlib.Path(sys.argv[1]))
done = 0
while done < int(sys.argv[2]):
    stored = store.get_sync("counter")
    try:
        store.put_sync("counter", str(int(stored.body) + 1).encode(), if_match=stored.info.etag)
        done += 1
    except PreconditionFailed:
        pass
"""


def test_compare_and_swap_holds_across_processes(store: FilesystemStore) -> None:
    store.put_sync("counter", b"0")
    racers = [subprocess.Popen([sys.executable, "-c", INCREMENT, store.root, "40"]) for _ in range(3)]
    assert [racer.wait(DEADLINE_SECONDS) for racer in racers] == [0, 0, 0]
    stored = store.get_sync("counter")
    assert stored is not None
    assert stored.body == b"120"


OVERWRITE = """
import sys, pathlib
from memoree.objects.filesystem import FilesystemStore
store = FilesystemStore(pathlib.Path(sys.argv[1]))
generation = 0
while True:
    store.put_sync("key", bytes([generation % 256]) * 300_000)
    generation += 1
"""


def test_a_killed_writer_leaves_a_whole_object_and_no_lock(store: FilesystemStore) -> None:
    store.put_sync("key", b"\0" * 300_000)
    for _ in range(3):
        first = store.head_sync("key").etag
        writer = subprocess.Popen([sys.executable, "-c", OVERWRITE, store.root])
        deadline = time.monotonic() + DEADLINE_SECONDS
        while store.head_sync("key").etag == first:
            assert time.monotonic() < deadline, "the writer never wrote"
            time.sleep(0.005)
        writer.send_signal(signal.SIGKILL)
        writer.wait(DEADLINE_SECONDS)
        stored = store.get_sync("key")
        assert stored is not None
        assert stored.body == stored.body[:1] * 300_000
        store.put_sync("key", b"\0" * 300_000)
