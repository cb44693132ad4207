"""Planted damage: every object of a backup lost, cut short or with one bit flipped is found, and named."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import orjson
import pytest

from memoree import erasures
from memoree.backup import manifest
from memoree.backup.database import open_copy
from memoree.backup.packed import pack
from memoree.backup.record import BackupRecord, FaultyObject, Manifest, find, records
from memoree.database import meta
from memoree.erasures import Erasure
from memoree.errors import Code, MemoreeError
from memoree.jobs.backup_check import Checked
from mixed_mutations import LONG_TEXT

from .workshop import Workshop

SCHEMA_2 = Path(__file__).parents[1] / "fixtures" / "schema-2"


def lost(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthened(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def flipped(place: int) -> Callable[[Path], None]:
    """One bit of a byte, counted from the start or, below zero, from the end."""

    def flip(path: Path) -> None:
        body = bytearray(path.read_bytes())
        body[place] ^= 0x10
        path.write_bytes(body)

    return flip


DAMAGES = {
    "lost": lost,
    "emptied": emptied,
    "cut short": cut_short,
    "lengthened": lengthened,
    "flipped where no reader of zstd looks": flipped(4),
    "flipped in its middle": flipped(50),
    "flipped at its end": flipped(-1),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workshop, BackupRecord]]:
    """A store and a backup of it; whoever damages an object puts it back."""
    workshop = Workshop(tmp_path_factory.mktemp("sound"))
    workshop.fill()
    yield workshop, workshop.back_up()
    workshop.close()


def key_of(workshop: Workshop, made: BackupRecord, name: str) -> str:
    if name == "blob":
        (key,) = workshop.blob_keys()
        return key
    return made.key_of(name)


def named(checked: Checked) -> set[str]:
    return {fault.object for fault in checked.faults}


@pytest.mark.proves("machine-213", "operations-22")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["intent.json", "checkpoint.db.zst", "manifest.jsonl.zst", "backup.json", "blob"])
def test_damage_of_any_object_is_found_and_named(sound: tuple[Workshop, BackupRecord], name: str, damage: str) -> None:
    workshop, made = sound
    key = key_of(workshop, made, name)
    path = workshop.path(key)
    body = path.read_bytes()
    DAMAGES[damage](path)
    try:
        assert named(workshop.verify(made.backup_id, full=True)) == {key}
    finally:
        path.write_bytes(body)


@pytest.mark.proves("operations-22")
@pytest.mark.parametrize("damage", ["lost", "cut short"])
def test_a_lost_blob_is_named_without_reading_any(filled: Workshop, damage: str) -> None:
    made = filled.back_up()
    (key,) = filled.blob_keys()
    DAMAGES[damage](filled.path(key))
    assert named(filled.verify(made.backup_id)) == {key}


@pytest.mark.proves("operations-22")
def test_where_the_database_is_lost_the_blobs_are_checked_by_the_manifest(filled: Workshop) -> None:
    made = filled.back_up()
    (blob,) = filled.blob_keys()
    for key in (blob, made.key_of("checkpoint.db.zst")):
        lost(filled.path(key))
    assert named(filled.verify(made.backup_id)) == {blob, made.key_of("checkpoint.db.zst")}


@pytest.mark.proves("machine-216")
def test_a_sound_backup_has_no_faults_and_leaves_no_mark(filled: Workshop) -> None:
    made = filled.back_up()
    keys = filled.backup_keys()
    checked = filled.verify(made.backup_id, full=True)
    assert (checked.faults, checked.drill, checked.blobs) == ([], "same", made.manifest.blobs)
    assert checked.claim_revisions > 5 and checked.artifact_revisions > 2
    assert filled.backup_keys() == keys
    assert list(filled.scratch.iterdir()) == []


@pytest.mark.proves("machine-213", "operations-22")
def test_parts_of_two_backups_make_none(filled: Workshop) -> None:
    """Each part is sound by itself; it is not what the record says."""
    one = filled.back_up()
    filled.put(LONG_TEXT + "and more\n")
    other = filled.back_up()
    for name in ("checkpoint.db.zst", "manifest.jsonl.zst"):
        filled.path(one.key_of(name)).write_bytes(filled.path(other.key_of(name)).read_bytes())
        assert one.key_of(name) in named(filled.verify(one.backup_id))
    filled.path(one.key_of("backup.json")).write_bytes(filled.path(other.key_of("backup.json")).read_bytes())
    assert named(filled.verify(one.backup_id)) == {one.key_of("backup.json")}


@pytest.mark.proves("machine-213", "operations-22")
def test_a_record_that_says_something_else_is_not_believed(filled: Workshop) -> None:
    made = filled.back_up()
    path = filled.path(made.key_of("backup.json"))
    body = path.read_bytes()
    for was, now in ((f'"commit_seq":{made.commit_seq}', '"commit_seq":9'), ('"blobs":1', '"blobs":0')):
        path.write_bytes(body.replace(was.encode(), now.encode()))
        assert path.read_bytes() != body
        assert named(filled.verify(made.backup_id)) == {made.key_of("backup.json")}


def test_a_record_that_cannot_be_believed_stops_whoever_needs_all_of_them(filled: Workshop) -> None:
    filled.back_up()
    made = filled.back_up()
    flipped(50)(filled.path(made.key_of("backup.json")))
    with pytest.raises(FaultyObject, match=made.key_of("backup.json")):
        asyncio.run(records(filled.store, filled.tenant))


def test_a_record_of_a_later_format_asks_for_a_later_program(filled: Workshop) -> None:
    made = filled.back_up()
    path = filled.path(made.key_of("backup.json"))
    path.write_bytes(replace(made, format=2).to_bytes())
    with pytest.raises(MemoreeError, match="upgrade this program") as refusal:
        filled.verify(made.backup_id)
    assert refusal.value.code is Code.CONFIG_ERROR
    assert orjson.loads(path.read_bytes())["format"] == 2


@pytest.mark.parametrize("backup_id", ["bkp_01M8QGH6WQ95JDNHPDC0PFY9RA", "nonsense", "../../local", "", "bkp_"])
def test_an_id_that_no_backup_has_is_not_found(filled: Workshop, backup_id: str) -> None:
    filled.back_up()
    for wanted in (lambda: filled.verify(backup_id), lambda: asyncio.run(find(filled.store, "local", backup_id))):
        with pytest.raises(MemoreeError) as refusal:
            wanted()
        assert refusal.value.code is Code.NOT_FOUND


@pytest.mark.proves("machine-213")
def test_a_blob_is_not_missed_once_all_that_cites_it_is_erased(filled: Workshop) -> None:
    made = filled.back_up()
    (key,) = filled.blob_keys()
    cited_by = filled.blob_artifacts()
    for commit_seq, entities, missed in ((1, ("art_1",), True), (made.commit_seq + 1, cited_by, False)):
        digest = key.rpartition("/")[2]
        erasure = Erasure(f"era_{commit_seq}", made.created_at, commit_seq, entities, (digest,))
        asyncio.run(erasures.record(filled.store, filled.tenant, erasure))
        filled.path(key).unlink(missing_ok=True)
        assert named(filled.verify(made.backup_id)) == ({key} if missed else set())


@pytest.mark.proves("operations-22")
def test_a_manifest_that_leaves_out_a_blob_of_its_database_is_named(filled: Workshop) -> None:
    made = filled.back_up()
    (filled.scratch / "empty").touch()
    path = filled.path(made.key_of("manifest.jsonl.zst"))
    path.unlink()
    listed = replace(pack(filled.scratch / "empty", path), name="manifest.jsonl.zst")
    forged = replace(made, manifest=Manifest(**asdict(listed), blobs=0, bytes=0))
    filled.path(made.key_of("backup.json")).write_bytes(forged.to_bytes())
    assert named(filled.verify(made.backup_id)) == {made.key_of("manifest.jsonl.zst")}


@pytest.mark.proves("fault-51")
def test_a_backup_of_a_later_schema_is_refused_and_left_as_it_is(filled: Workshop) -> None:
    made = filled.back_up()
    path = filled.path(made.key_of("backup.json"))
    path.write_bytes(replace(made, schema_version=made.schema_version + 1).to_bytes())
    before = {key: filled.path(key).read_bytes() for key in filled.backup_keys()}
    with pytest.raises(MemoreeError, match="upgrade it") as refusal:
        filled.verify(made.backup_id)
    assert refusal.value.code is Code.CONFIG_ERROR
    assert {key: filled.path(key).read_bytes() for key in filled.backup_keys()} == before


@pytest.mark.proves("fault-51")
def test_a_backup_of_an_earlier_schema_is_checked_as_it_will_be_restored(workshop: Workshop) -> None:
    """It is migrated in the scratch directory; its objects stay as they are."""
    made = workshop.back_up()
    scratch = workshop.scratch
    old = scratch / "old.db"
    shutil.copyfile(SCHEMA_2 / "memoree.sqlite3", old)
    shutil.copytree(SCHEMA_2 / "objects", workshop.store.root, dirs_exist_ok=True)
    with closing(open_copy(old)) as db:
        state = {name: value for name, value in asdict(meta.read(db)).items() if not name.startswith("held_")}
    written = manifest.write(old, scratch / "manifest.jsonl")
    workshop.path(made.key_of("checkpoint.db.zst")).unlink()
    workshop.path(made.key_of("manifest.jsonl.zst")).unlink()
    listed = pack(scratch / "manifest.jsonl", workshop.path(made.key_of("manifest.jsonl.zst")))
    made = replace(
        made,
        **{**state, "integrity": state["integrity"].hex()},
        checkpoint=pack(old, workshop.path(made.key_of("checkpoint.db.zst"))),
        manifest=Manifest(**asdict(listed), blobs=written.blobs, bytes=written.bytes),
    )
    workshop.path(made.key_of("backup.json")).write_bytes(made.to_bytes())
    before = {key: workshop.path(key).read_bytes() for key in workshop.backup_keys()}
    checked = workshop.verify(made.backup_id, full=True)
    assert (checked.faults, checked.drill, made.schema_version) == ([], "not compared", 2)
    assert checked.blobs == written.blobs > 0
    assert {key: workshop.path(key).read_bytes() for key in workshop.backup_keys()} == before
