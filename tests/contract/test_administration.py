"""Machine protocol §4.36 and §4.37: `verify` and `backup.create`."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from mixed_mutations import BLOBS, LONG_TEXT, mixed_mutations

from .door import Door, EmbeddedDoor, Json, ManualClock
from .workbench import Workbench, body_of

VERIFICATION = {
    "ok", "schema_version", "last_commit_seq", "checked_artifact_revisions", "checked_claim_revisions",
    "checked_external_blobs", "issues", "warnings",
}  # fmt: skip
BACKUP = {"destination", "database", "blobs", "commit_seq", "copied_external_blobs", "created_at"}


def blobs_of(data_dir: Path) -> list[Path]:
    return sorted(path for path in (data_dir / "objects" / "tenants").rglob("*") if path.is_file())


def contents(directory: Path) -> Mapping[str, str]:
    """Every file below a directory, with a digest of what it holds."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def back_up(door: Door, destination: Path) -> Json:
    return door.ok("backup.create", {"destination": str(destination)}, context=None)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory beside the store, for backups."""
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups"


# --- verify -----------------------------------------------------------------------------------------------------


@pytest.mark.proves("machine-212")
def test_a_fresh_store_is_whole(empty_store: EmbeddedDoor) -> None:
    answer = empty_store.succeeded("verify", context=None)
    assert set(answer["result"]) == VERIFICATION
    assert "commit_seq" not in answer
    result = answer["result"]
    assert (result["ok"], result["issues"], result["warnings"], result["last_commit_seq"]) == (True, [], [], 0)
    assert {result[name] for name in VERIFICATION if name.startswith("checked_")} == {0}


@pytest.mark.proves("machine-212", "machine-145")
def test_a_store_is_whole_after_every_kind_of_mutation(door: Door) -> None:
    mixed_mutations(door.ok)
    result = door.ok("verify", context=None)
    assert (result["issues"], result["ok"]) == ([], True)
    assert result["last_commit_seq"] >= door.last_commit_seq()
    assert result["checked_artifact_revisions"] >= 9
    assert result["checked_claim_revisions"] >= 7
    assert result["checked_external_blobs"] >= BLOBS


@pytest.mark.proves("machine-213", "machine-91")
def test_a_corrupted_blob_is_told_by_verify_and_by_whoever_reads_it(empty_store: EmbeddedDoor) -> None:
    artifact = Workbench(empty_store).put(LONG_TEXT)
    [blob] = blobs_of(empty_store.data_dir)
    assert blob.name == artifact["blob_hash"].removeprefix("blake3:")
    blob.write_bytes(blob.read_bytes().replace(b"celadon", b"tenmoku", 1))
    result = empty_store.ok("verify", context=None)
    assert not result["ok"]
    [issue] = result["issues"]
    assert blob.name in issue and "digest mismatch" in issue
    wanted = {"artifact_id": artifact["artifact_id"], "include_content": True}
    empty_store.refused("INTEGRITY_ERROR", "artifact.get", wanted)


@pytest.mark.proves("machine-213")
@pytest.mark.parametrize("damage", ["a file", "a link"])
@pytest.mark.parametrize("depth", range(6), ids=lambda depth: f"depth-{depth}")
def test_whatever_became_of_the_directory_of_blobs_verify_answers(
    empty_store: EmbeddedDoor, depth: int, damage: str
) -> None:
    """From the store of objects itself down to the directory of one blob."""
    Workbench(empty_store).put(LONG_TEXT)
    [blob] = blobs_of(empty_store.data_dir)
    directory = blob.parents[5 - depth]
    moved = directory.rename(empty_store.data_dir / "moved")
    directory.symlink_to(moved) if damage == "a link" else directory.touch()
    result = empty_store.ok("verify", context=None)
    harmless = (depth, damage) == (0, "a link")
    assert result["ok"] is harmless, "the store itself may be elsewhere"
    assert any(blob.name in issue for issue in result["issues"]) is not harmless


@pytest.mark.proves("machine-91")
@pytest.mark.parametrize("size", [16 * 1024, 16 * 1024 + 1])
def test_only_a_body_over_16_kib_lives_outside_the_database(empty_store: EmbeddedDoor, size: int) -> None:
    artifact = Workbench(empty_store).put("x" * size)
    assert [path.stat().st_size for path in blobs_of(empty_store.data_dir)] == [size] * (size > 16 * 1024)
    assert empty_store.ok("verify", context=None)["checked_external_blobs"] == int(size > 16 * 1024)
    assert body_of(Workbench(empty_store).get(artifact["artifact_id"])) == b"x" * size


@pytest.mark.fault_class(19)
def test_what_lost_its_owner_is_no_orphan(empty_store: EmbeddedDoor) -> None:
    """Forgetting and withdrawing hide; they leave neither rows nor blobs that nothing points at."""
    bench = Workbench(empty_store)
    artifact = bench.put(LONG_TEXT)
    bench.revise(artifact, LONG_TEXT + "more")
    bench.forget(artifact)
    claim = bench.claim(evidence=[{name: artifact[name] for name in ("artifact_id", "revision_id")}])
    bench.retract(claim)
    mixed_mutations(empty_store.ok)
    result = empty_store.ok("verify", context=None)
    assert result["issues"] == []
    assert result["checked_external_blobs"] == len(blobs_of(empty_store.data_dir)) == 2


# --- backup.create ----------------------------------------------------------------------------------------------


@pytest.mark.proves("machine-66")
def test_a_backup_takes_no_commit_number_and_tells_the_one_it_holds(
    empty_store: EmbeddedDoor, outside: Path, clock: ManualClock
) -> None:
    mixed_mutations(empty_store.ok)
    with empty_store.nothing_written():
        answer = empty_store.succeeded("backup.create", {"destination": str(outside / "one")}, context=None)
    result = answer["result"]
    assert "commit_seq" not in answer
    assert set(result) == BACKUP
    assert result["commit_seq"] == empty_store.last_commit_seq()
    assert result["created_at"] == clock.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.proves("machine-216")
@pytest.mark.fault_class(64)
def test_a_backup_opens_as_a_store_with_the_same_content(empty_store: EmbeddedDoor, outside: Path) -> None:
    names = mixed_mutations(empty_store.ok)
    result = back_up(empty_store, outside / "one")
    assert (result["destination"], result["copied_external_blobs"]) == (str(outside / "one"), BLOBS)
    assert Path(result["database"]).is_file() and Path(result["blobs"]).is_dir()
    copy = EmbeddedDoor(outside / "one", empty_store.clock)
    try:
        verified = copy.ok("verify", context=None)
        assert (verified["issues"], verified["last_commit_seq"]) == ([], result["commit_seq"])
        for op, wanted in (
            ("artifact.get", {"artifact_id": names["recipes"]["artifact_id"], "include_content": True}),
            ("artifact.history", {"artifact_id": names["log"]["artifact_id"]}),
            ("claim.get", {"claim_id": names["reached"]["claim_id"]}),
            ("relation.list", {"entity_type": "claim", "entity_id": names["reached"]["claim_id"]}),
            ("conflict.list", {"include_stale": True}),
            ("search", {"query": "celadon", "include_historical": True}),
            ("feedback.list", {}),
        ):
            assert copy.ok(op, wanted) == empty_store.ok(op, wanted), op
        Workbench(copy).put("written after the restore")
        assert copy.last_commit_seq() == empty_store.last_commit_seq() + 1
    finally:
        copy.close()


@pytest.mark.proves("machine-214")
@pytest.mark.parametrize("what", ["an empty directory", "a directory", "a file", "a dangling link", "a backup"])
def test_nothing_that_exists_is_a_destination(empty_store: EmbeddedDoor, outside: Path, what: str) -> None:
    there = outside / "there"
    if what == "a file":
        there.write_text("mine")
    elif what == "a dangling link":
        there.symlink_to(outside / "nowhere")
    elif what == "a backup":
        back_up(empty_store, there)
    else:
        there.mkdir()
    if what == "a directory":
        (there / "mine").write_text("mine")
    before = (contents(outside), sorted(outside.iterdir()))
    error = empty_store.refused("INVALID_REQUEST", "backup.create", {"destination": str(there)}, context=None)
    assert "exists" in error["message"]
    assert (contents(outside), sorted(outside.iterdir())) == before


@pytest.mark.proves("machine-214")
@pytest.mark.parametrize("destination", ["", " ", "backup", "./backup", "../backup", "/tmp/\0", "/" + 300 * "x"])
def test_what_is_no_absolute_path_is_refused(empty_store: EmbeddedDoor, destination: str) -> None:
    empty_store.refused("INVALID_REQUEST", "backup.create", {"destination": destination}, context=None)


def test_a_backup_among_the_blobs_it_would_copy_is_refused(empty_store: EmbeddedDoor) -> None:
    inside = empty_store.data_dir / "objects" / "tenants" / "backup"
    empty_store.refused("INVALID_REQUEST", "backup.create", {"destination": str(inside)}, context=None)
    assert not inside.exists()


@pytest.mark.proves("machine-215")
@pytest.mark.parametrize("damage", ["flipped", "missing", "cut short", "grown", "a link", "a pipe", "a directory"])
def test_a_corrupt_blob_fails_the_backup_and_leaves_nothing(
    empty_store: EmbeddedDoor, outside: Path, damage: str
) -> None:
    Workbench(empty_store).put(LONG_TEXT)
    [blob] = blobs_of(empty_store.data_dir)
    data = blob.read_bytes()
    blob.unlink()
    if damage == "a link":
        blob.symlink_to(outside.with_name("moved"))
        outside.with_name("moved").write_bytes(data)
    elif damage == "a pipe":
        os.mkfifo(blob)
    elif damage == "a directory":
        blob.mkdir()
    elif damage != "missing":
        blob.write_bytes({"flipped": b"\0" + data[1:], "cut short": data[:-1], "grown": data + b"x"}[damage])
    wanted = {"destination": str(outside / "one")}
    error = empty_store.refused("INTEGRITY_ERROR", "backup.create", wanted, context=None)
    assert blob.name in error["message"]
    assert list(outside.iterdir()) == []


def test_missing_parents_of_a_destination_are_made(empty_store: EmbeddedDoor, outside: Path) -> None:
    destination = outside / "2026" / "03" / "05"
    assert back_up(empty_store, destination)["destination"] == str(destination)
    assert destination.is_dir()


def test_writers_of_other_processes_are_not_waited_for(empty_store: EmbeddedDoor, outside: Path) -> None:
    """A backup reads one snapshot: whoever holds the writer's lock, it goes on."""
    Workbench(empty_store).put()
    lock = os.open(empty_store.data_dir / "writer.lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert back_up(empty_store, outside / "one")["commit_seq"] == 1
    finally:
        os.close(lock)
