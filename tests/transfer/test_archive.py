"""Exports of a data directory and back: everything, exactly, or a refusal that leaves nothing."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from jobs.kiln import Kiln
from memoree import limits
from memoree.assembly import embedded_service
from memoree.embedded import EmbeddedService
from memoree.erasures import Erasure, record
from memoree.errors import Code, MemoreeError
from memoree.jobs.embedded import EmbeddedTenancy
from memoree.transfer import archive as archive_module
from memoree.transfer.exporting import Exported, export_tenant
from memoree.transfer.into_directory import import_directory
from memoree.writer.adoption import is_alive
from mixed_mutations import mixed_mutations
from test_embedded import call, request

ERASURE = Erasure("era_1", "2026-01-01T00:00:00.000000000Z", 1, ("clm_gone",), ())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedService]:
    service = embedded_service(tmp_path_factory.mktemp("source") / "data")
    keys = iter(range(10_000))
    mixed_mutations(lambda op, payload: call(service, op, payload, key=f"k{next(keys)}")["result"])
    asyncio.run(record(service.store, "local", ERASURE))
    yield service
    service.close_sync()


def exported(service: EmbeddedService) -> tuple[bytes, Exported]:
    file = io.BytesIO()
    told = asyncio.run(export_tenant(EmbeddedTenancy(service), file))
    return file.getvalue(), told


@pytest.fixture(scope="module")
def archive(source: EmbeddedService) -> bytes:
    return exported(source)[0]


def members(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {each.name: opened.extractfile(each).read() for each in opened}  # type: ignore[union-attr]


def repacked(found: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as packing:
        for name, data in found.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            packing.addfile(member, io.BytesIO(data))
    return file.getvalue()


def refused(archive: bytes, directory: Path) -> MemoreeError:
    with pytest.raises(MemoreeError) as caught:
        import_directory(io.BytesIO(archive), directory / "data")
    assert list(directory.iterdir()) == [], "a refused import left something behind"
    return caught.value


@pytest.mark.proves("operations-72", "operations-15")
def test_an_import_exports_to_the_same_bytes(archive: bytes, tmp_path: Path) -> None:
    imported = import_directory(io.BytesIO(archive), tmp_path / "data")
    service = embedded_service(tmp_path / "data")
    try:
        again, told = exported(service)
        answer = call(service, "verify", {})
    finally:
        service.close_sync()
    assert again == archive
    assert (imported.commit_seq, imported.rows, imported.blobs) == (told.commit_seq, told.rows, told.blobs)
    assert answer["result"]["ok"], answer


def test_an_imported_store_answers_as_its_source_and_goes_on(
    source: EmbeddedService, archive: bytes, tmp_path: Path
) -> None:
    imported = import_directory(io.BytesIO(archive), tmp_path / "data")
    service = embedded_service(tmp_path / "data")
    asked = request("memory.recall", {"query": "celadon cone"})
    try:
        here, there = (orjson.loads(each.call_bytes(asked)) for each in (service, source))
        written = call(
            service, "claim.assert", {"claim_type": "fact", "statement": "the saggar chimney draws"}, key="next"
        )
        found = call(service, "memory.recall", {"query": "saggar chimney"})
    finally:
        service.close_sync()
    assert here["result"] == there["result"]
    assert written["commit_seq"] == imported.commit_seq + 1
    assert found["ok"] and "saggar chimney" in orjson.dumps(found).decode()


def test_a_repeated_request_is_a_repeat_in_the_imported_store(archive: bytes, tmp_path: Path) -> None:
    import_directory(io.BytesIO(archive), tmp_path / "data")
    service = embedded_service(tmp_path / "data")
    first = {"kind": "note", "title": "Kiln firing 12", "content": {"type": "text", "data": "cone 6 reached at 21:40"}}
    try:
        repeated = call(service, "artifact.put", first, key="k0")
    finally:
        service.close_sync()
    assert repeated["ok"] and repeated["result"]["created"] is False


def test_the_archive_is_read_with_ordinary_tools(archive: bytes) -> None:
    found = members(archive)
    header = orjson.loads(found["export.json"])
    assert next(iter(found)) == "export.json"
    titles = [orjson.loads(line)["title"] for line in found["tables/artifact_revisions/000001.jsonl"].splitlines()]
    assert "Kiln firing 12" in titles
    rows = sum(data.count(b"\n") for name, data in found.items() if name.startswith("tables/"))
    assert rows == sum(header["tables"].values())
    assert sum(name.startswith("blobs/") for name in found) == header["blobs"] > 0


@pytest.mark.proves("operations-73")
@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.7, 0.95])
def test_an_archive_cut_anywhere_is_refused(archive: bytes, tmp_path: Path, share: float) -> None:
    cut = archive[: int(len(archive) * share)]
    assert refused(cut, tmp_path).code is Code.INVALID_REQUEST


@pytest.mark.proves("operations-73")
def test_every_member_that_is_left_out_is_missed(archive: bytes, tmp_path: Path) -> None:
    found = members(archive)
    for name in found:
        refusal = refused(repacked({other: data for other, data in found.items() if other != name}), tmp_path)
        assert refusal.code is Code.INVALID_REQUEST, name


@pytest.mark.proves("operations-73")
def test_changed_content_is_refused(archive: bytes, tmp_path: Path) -> None:
    found = members(archive)
    blob = next(name for name in found if name.startswith("blobs/"))
    statements = "tables/claim_revisions/000001.jsonl"
    damages = {
        blob: found[blob][:-1] + b"?",
        statements: found[statements].replace(b"cone 6", b"cone 7"),
        "export.json": found["export.json"].replace(b'"commit_seq":', b'"commit_seq":1'),
    }
    for name, damaged in damages.items():
        assert damaged != found[name]
        assert refused(repacked({**found, name: damaged}), tmp_path).code is Code.INTEGRITY_ERROR, name


@pytest.mark.fault_class(21)
@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "tables/meta/000001.jsonl", "blobs/../../x", "other"])
def test_names_that_no_export_has_are_refused(archive: bytes, tmp_path: Path, name: str) -> None:
    assert refused(repacked({**members(archive), name: b"{}\n"}), tmp_path).code is Code.INVALID_REQUEST


@pytest.mark.proves("operations-73")
def test_an_import_never_touches_a_store(archive: bytes, tmp_path: Path) -> None:
    service = embedded_service(tmp_path / "data")
    service.close_sync()
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(MemoreeError, match="holds a store already"):
        import_directory(io.BytesIO(archive), tmp_path / "data")
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_an_empty_directory_may_be_imported_into(archive: bytes, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert import_directory(io.BytesIO(archive), tmp_path / "data").rows > 0


@pytest.mark.proves("operations-73")
def test_a_damaged_blob_stops_the_export(source: EmbeddedService, tmp_path: Path, archive: bytes) -> None:
    import_directory(io.BytesIO(archive), tmp_path / "data")
    (blob,) = (path for path in (tmp_path / "data" / "objects").rglob("*") if path.is_file() and "blobs" in path.parts)
    blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    service = embedded_service(tmp_path / "data")
    try:
        with pytest.raises(MemoreeError) as caught:
            exported(service)
    finally:
        service.close_sync()
    assert caught.value.code is Code.INTEGRITY_ERROR


NONSENSE = {
    "no tables": {"tables": None},
    "a version that is text": {"schema_version": "5"},
    "a sum that is none": {"integrity": "zz"},
    "a number that is text": {"commit_seq": "a"},
    "a number beyond the store's": {"commit_seq": 2**63},
    "a clock beyond time": {"hlc": 2**63},
    "fewer than nothing": {"blobs": -1},
    "another member": {"also": 1},
}


@pytest.mark.proves("operations-73")
@pytest.mark.parametrize("what", NONSENSE)
def test_a_header_of_nonsense_is_refused(archive: bytes, tmp_path: Path, what: str) -> None:
    found = members(archive)
    header = orjson.dumps({**orjson.loads(found["export.json"]), **NONSENSE[what]})
    assert refused(repacked({**found, "export.json": header}), tmp_path).code is Code.INVALID_REQUEST


@pytest.mark.proves("operations-73")
@pytest.mark.parametrize("row_id", [2**63, -(2**70), "one", None, 1.5, [1]])
def test_a_row_that_no_table_takes_is_refused(archive: bytes, tmp_path: Path, row_id: object) -> None:
    found = members(archive)
    name = "tables/claims/000001.jsonl"
    first, *others = found[name].splitlines()
    wrong = json.dumps({**orjson.loads(first), "row_id": row_id}).encode()
    assert refused(repacked({**found, name: b"\n".join([wrong, *others])}), tmp_path).code is Code.INVALID_REQUEST


@pytest.mark.proves("operations-73")
def test_a_line_without_end_is_not_held_in_memory(
    archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "LINE_BYTES_MAX", 100_000)
    found = members(archive)
    name = "tables/claims/000001.jsonl"
    refusal = refused(repacked({**found, name: b"{" + b" " * 200_000 + b"}"}), tmp_path)
    assert refusal.code is Code.INVALID_REQUEST and "more than 100000 bytes" in refusal.message


@pytest.mark.proves("operations-73")
def test_an_imported_store_is_no_empty_one(archive: bytes, tmp_path: Path) -> None:
    import_directory(io.BytesIO(archive), tmp_path / "data")
    service = embedded_service(tmp_path / "data")
    try:
        _, counters = service.snapshot(lambda db: None)
    finally:
        service.close_sync()
    assert is_alive(counters), "a restore would take its place unasked"


@pytest.mark.proves("operations-72")
def test_an_export_while_blobs_are_condemned_is_whole(tmp_path: Path) -> None:
    """Given a collection under way, as for hours after every one and after an erasure: it is counted in the store's sum
    and not carried along."""
    kiln = Kiln(new_directory(tmp_path / "kiln"))
    kiln.bench.claim()
    kiln.orphan("never cited")
    kiln.clock.advance(seconds=limits.POINT_IN_TIME_SECONDS + 1)
    kiln.collect()
    assert kiln.condemned()
    file = io.BytesIO()
    asyncio.run(export_tenant(kiln, file))
    import_directory(io.BytesIO(file.getvalue()), tmp_path / "data")
    service = embedded_service(tmp_path / "data")
    try:
        again, _ = exported(service)
        assert call(service, "verify", {})["result"]["ok"]
    finally:
        service.close_sync()
    assert again == file.getvalue()


def new_directory(path: Path) -> Path:
    path.mkdir()
    return path
