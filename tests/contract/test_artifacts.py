"""Artifacts: what is stored and how it is read back (machine protocol §4.0.1, §4.0.3, §4.5, §4.6)."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from .door import Door, EmbeddedDoor, ManualClock
from .protocol import ARTIFACT_ACKNOWLEDGEMENT, ARTIFACT_RECORD, KIB, MIB
from .workbench import Workbench, body_of, raw, text

BODIES = [
    b"",
    b"x",
    b"\xff\xfe",
    b"\0",
    bytes(range(256)),
    b"\xef\xbb\xbfBOM\r\n",
    "żółw 👩‍🚀".encode("utf-16"),
]
BINARY = "application/octet-stream"


def noise(size: int) -> bytes:
    return hashlib.shake_256(b"kiln").digest(size)


@pytest.mark.proves("machine-69")
def test_a_put_is_acknowledged_without_its_content(bench: Workbench) -> None:
    stored = bench.put("cone 6 reached at 21:40", kind="log", title="Kiln firing 12")
    assert set(stored) == ARTIFACT_ACKNOWLEDGEMENT
    assert stored["artifact_id"].startswith("art_") and len(stored["artifact_id"]) == 30
    assert stored["revision_id"].startswith("arev_") and len(stored["revision_id"]) == 31
    assert (stored["kind"], stored["title"]) == ("log", "Kiln firing 12")
    assert stored["status"] == "active"
    assert stored["revision_number"] == 1
    assert stored["revision_commit_seq"] == stored["commit_seq"]
    assert stored["size_bytes"] == 23
    assert stored["created_at"] == stored["revision_created_at"]
    assert stored["context"] == bench.door.context | {"pins": []}
    assert stored["provenance"] == {}


def test_acknowledgements_and_records_never_hold_pins(door: Door, bench: Workbench) -> None:
    stored = bench.put(how={"context": door.here(pins=["art_A"])})
    assert stored["context"]["pins"] == []
    assert bench.get(stored["artifact_id"])["context"]["pins"] == []


def test_timestamps_are_the_services_clock_in_utc(bench: Workbench, clock: ManualClock) -> None:
    stored = bench.put()
    assert stored["created_at"] == "2026-03-02T20:41:07.250Z"
    clock.advance(days=1, milliseconds=1)
    revised = bench.revise(stored)
    assert revised["created_at"] == stored["created_at"]
    assert revised["revision_created_at"] == "2026-03-03T20:41:07.251Z"


def test_timestamps_never_go_back_when_the_clock_does(bench: Workbench, clock: ManualClock) -> None:
    stored = bench.put()
    clock.advance(hours=-5)
    revised = bench.revise(stored)
    assert datetime.fromisoformat(revised["revision_created_at"]) >= datetime.fromisoformat(stored["created_at"])


@pytest.mark.fault_class(61)
@pytest.mark.proves("machine-70", "machine-74")
@pytest.mark.parametrize("media_type", ["text/plain", "application/json", BINARY, "image/png"])
@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_bytes_come_back_as_they_went_in(bench: Workbench, body: bytes, media_type: str) -> None:
    stored = bench.put(body, media_type=media_type)
    assert stored["size_bytes"] == len(body)
    assert stored["blob_hash"] == blake3(body).hexdigest()
    assert body_of(bench.get(stored["artifact_id"])) == body


@pytest.mark.proves("machine-70", "machine-74")
@pytest.mark.parametrize(
    "body",
    ["", "żółw 👩‍🚀", "\ufeffBOM\r\n", "NUL \0 inside", "\u202eright to left", "\ufffe", "e\u0301"],
    ids=ascii,
)
def test_text_comes_back_as_it_went_in(bench: Workbench, body: str) -> None:
    stored = bench.put(body)
    assert bench.get(stored["artifact_id"])["content"] == {"type": "text", "data": body}


@pytest.mark.proves("machine-71")
@pytest.mark.parametrize(
    "data",
    ["!", "YQ", "YQ=", "YQ===", "YQ==YQ==", "Y Q==", "YQ==\n", "-_==", "YR==", "=", "é===", "YQ==="],
    ids=ascii,
)
def test_base64_must_be_the_standard_alphabet_with_padding(door: Door, data: str) -> None:
    put = {"kind": "note", "title": "t", "content": {"type": "base64", "data": data}}
    if data == "YR==":  # sloppy trailing bits: either reading gives exactly one byte
        answer = door.call("artifact.put", put)
        assert not answer["ok"] or answer["result"]["size_bytes"] == 1
        return
    with door.nothing_written():
        door.refused("INVALID_REQUEST", "artifact.put", put)


@pytest.mark.parametrize(
    "content",
    [
        "x",
        None,
        [],
        {},
        {"type": "text"},
        {"data": "x"},
        {"type": "utf-8", "data": "x"},
        {"type": "text", "data": None},
        {"type": None, "data": "x"},
        {"type": "text", "data": 7},
        {"type": "Text", "data": "x"},
    ],
    ids=str,
)
def test_content_has_exactly_a_known_type_and_data(door: Door, content: Any) -> None:
    door.refused("INVALID_REQUEST", "artifact.put", {"kind": "note", "title": "t", "content": content})


@pytest.mark.fault_class(6)
@pytest.mark.proves("machine-72")
@pytest.mark.parametrize("size", [2100, 16 * KIB, 16 * KIB + 1, 64 * KIB + 1, 8 * MIB - 1, 8 * MIB])
def test_a_body_up_to_8_mib_is_kept_whole(bench: Workbench, size: int) -> None:
    body = noise(size)
    stored = bench.put(body, media_type=BINARY)
    assert body_of(bench.get(stored["artifact_id"])) == body


@pytest.mark.fault_class(6)
@pytest.mark.proves("machine-72")
@pytest.mark.parametrize("form", ["text", "base64"])
def test_a_body_over_8_mib_is_refused(door: Door, bench: Workbench, form: str) -> None:
    content = raw(b"x" * (8 * MIB + 1)) if form == "base64" else text("é" * (4 * MIB) + "x")
    artifact = bench.put()
    with door.nothing_written():
        door.refused("CONTENT_TOO_LARGE", "artifact.put", {"kind": "note", "title": "t", "content": content})
        revision = {"artifact_id": artifact["artifact_id"], "if_revision": artifact["revision_id"]}
        door.refused("CONTENT_TOO_LARGE", "artifact.revise", revision | {"content": content})


@pytest.mark.proves("machine-73")
def test_text_whose_json_form_would_be_too_large_comes_back_as_base64(bench: Workbench) -> None:
    body = b"\0" * (8 * MIB)
    stored = bench.put(body, media_type="text/plain")
    content = bench.get(stored["artifact_id"])["content"]
    assert content["type"] == "base64"
    assert body_of({"content": content}) == body


@pytest.mark.parametrize(("controls", "form"), [(2 * MIB - 1, "text"), (2 * MIB, "base64")])
def test_the_encoded_size_decides_the_representation_at_12_mib(bench: Workbench, controls: int, form: str) -> None:
    # 2 quotes + 6 bytes per control character: 12 MiB − 4 fits, 12 MiB + 2 does not.
    stored = bench.put(b"\x01" * controls, media_type="text/plain")
    assert bench.get(stored["artifact_id"])["content"]["type"] == form


@pytest.mark.proves("machine-75")
@pytest.mark.parametrize(
    "media_type",
    [
        "application/json",
        "application/ld+json",
        "image/svg+xml",
        "application/atom+xml",
        "application/yaml",
        "application/toml",
        "APPLICATION/SQL; charset=utf-8",
        "application/graphql",
        "application/javascript",
        "application/x-yaml",
        "application/xml",
    ],
)
def test_text_like_media_that_is_no_text_comes_back_as_base64_and_is_searchable(
    bench: Workbench, media_type: str
) -> None:
    body = '{"glaze": "celadon"}'
    stored = bench.put(body, title="untitled", media_type=media_type)
    fetched = bench.get(stored["artifact_id"])
    assert fetched["content"]["type"] == "base64"
    assert body_of(fetched) == body.encode()
    assert bench.found("celadon") == [stored["artifact_id"]]


@pytest.mark.parametrize("media_type", ["text/markdown", "TEXT/HTML", "Text/Plain; charset=utf-8"])
def test_text_media_in_any_case_come_back_as_text(bench: Workbench, media_type: str) -> None:
    stored = bench.put("celadon", media_type=media_type)
    assert stored["media_type"] == media_type
    assert bench.get(stored["artifact_id"])["content"] == text("celadon")


@pytest.mark.parametrize("media_type", [BINARY, "image/png", "application/pdf", "audio/x-text"])
def test_other_media_are_searchable_by_title_only(bench: Workbench, media_type: str) -> None:
    stored = bench.put("celadon", title="stoneware", media_type=media_type)
    assert bench.found("celadon") == []
    assert bench.found("stoneware") == [stored["artifact_id"]]


@pytest.mark.proves("machine-76")
def test_the_media_type_defaults_to_utf8_text_and_needs_a_slash(door: Door, bench: Workbench) -> None:
    assert bench.put()["media_type"] == "text/plain; charset=utf-8"
    door.refused(
        "INVALID_REQUEST",
        "artifact.put",
        {"kind": "k", "title": "t", "media_type": "text", "content": text("x")},
    )


FIELD_BYTES_MAX = {"kind": 128, "title": 4096, "media_type": 512, "actor": 1024}
TAKES = {
    "artifact.put": ["kind", "title", "media_type", "actor"],
    "artifact.revise": ["title", "media_type", "actor"],
}


@pytest.mark.proves("machine-77")
@pytest.mark.parametrize(("op", "member"), [(op, member) for op, members in TAKES.items() for member in members])
@pytest.mark.parametrize("unit", ["x", "é", "👩"])
def test_a_field_at_its_bound_in_bytes_is_accepted_and_one_byte_more_is_not(
    door: Door, specimen_inputs: dict[str, Any], op: str, member: str, unit: str
) -> None:
    bound = FIELD_BYTES_MAX[member]
    start = "text/plain; x=y/" if member == "media_type" else ""
    longest = start + unit * ((bound - len(start)) // len(unit.encode()))
    assert len(longest.encode()) == bound
    with door.nothing_written():
        door.refused("INVALID_REQUEST", op, specimen_inputs[op] | {member: longest + "x"})
    assert door.ok(op, specimen_inputs[op] | {member: longest})[member] == longest


@pytest.mark.proves("machine-77")
@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\u00a0\u2003", 7, True, ["x"], {"$ne": ""}], ids=ascii)
@pytest.mark.parametrize("member", ["kind", "title", "media_type", "actor"])
def test_a_blank_field_is_refused(door: Door, member: str, blank: Any) -> None:
    put = {"kind": "note", "title": "t", "content": text("x")}
    door.refused("INVALID_REQUEST", "artifact.put", put | {member: blank})


@pytest.mark.parametrize("member", ["kind", "title", "content"])
def test_the_required_members_of_a_put(door: Door, member: str) -> None:
    put = {"kind": "note", "title": "t", "content": text("x")}
    door.refused("INVALID_REQUEST", "artifact.put", put | {member: None})
    del put[member]
    door.refused("INVALID_REQUEST", "artifact.put", put)


@pytest.mark.proves("machine-77")
@pytest.mark.parametrize("op", ["artifact.put", "artifact.revise"])
@pytest.mark.parametrize("unit", ["x", "é"])
def test_provenance_is_at_most_64_kib_of_compact_json(
    door: Door, specimen_inputs: dict[str, Any], op: str, unit: str
) -> None:
    overhead = len('{"p":""}')
    fits = {"p": unit * ((64 * KIB - overhead) // len(unit.encode()))}
    over = {"p": fits["p"] + unit}
    with door.nothing_written():
        door.refused("INVALID_REQUEST", op, specimen_inputs[op] | {"provenance": over})
    assert door.ok(op, specimen_inputs[op] | {"provenance": fits})["provenance"] == fits


@pytest.mark.parametrize("provenance", [[], "x", 1, True])
def test_provenance_is_an_object(door: Door, provenance: Any) -> None:
    put = {"kind": "note", "title": "t", "content": text("x"), "provenance": provenance}
    door.refused("INVALID_REQUEST", "artifact.put", put)


@pytest.mark.proves("machine-78")
def test_equal_bytes_are_two_artifacts_and_one_stored_blob(empty_store: EmbeddedDoor) -> None:
    bench = Workbench(empty_store)
    body = noise(20 * KIB)
    one, two = bench.put(body, media_type=BINARY), bench.put(body, media_type=BINARY)
    assert one["artifact_id"] != two["artifact_id"]
    assert one["blob_hash"] == two["blob_hash"]
    assert len(blobs(empty_store.data_dir, one["blob_hash"])) == 1


def blobs(data_dir: Path, digest: str) -> list[Path]:
    return [path for path in data_dir.rglob("*") if path.is_file() and path.name == digest]


@pytest.mark.proves("machine-91")
def test_a_large_body_is_stored_outside_the_database_and_tampering_is_noticed(
    empty_store: EmbeddedDoor,
) -> None:
    bench = Workbench(empty_store)
    inline, outside = (
        bench.put(noise(16 * KIB), media_type=BINARY),
        bench.put(noise(16 * KIB + 1), media_type=BINARY),
    )
    assert blobs(empty_store.data_dir, inline["blob_hash"]) == []
    (path,) = blobs(empty_store.data_dir, outside["blob_hash"])
    for damaged in (b"\0" + path.read_bytes()[1:], path.read_bytes()[:-1]):
        path.chmod(0o600)
        path.write_bytes(damaged)
        empty_store.reopen()
        empty_store.refused("INTEGRITY_ERROR", "artifact.get", {"artifact_id": outside["artifact_id"]})
    assert body_of(bench.get(inline["artifact_id"])) == noise(16 * KIB)


@pytest.mark.proves("machine-79")
def test_content_is_left_out_on_request(door: Door, bench: Workbench) -> None:
    stored = bench.put()
    wanted = {"artifact_id": stored["artifact_id"]}
    assert set(door.ok("artifact.get", wanted | {"include_content": False})) == ARTIFACT_RECORD
    assert set(door.ok("artifact.get", wanted | {"include_content": True})) == ARTIFACT_RECORD | {"content"}
    assert set(door.ok("artifact.get", wanted)) == ARTIFACT_RECORD | {"content"}


@pytest.mark.parametrize("value", [None, 0, 1, "true", "false", []], ids=repr)
def test_include_content_is_a_boolean(door: Door, bench: Workbench, value: Any) -> None:
    wanted = {"artifact_id": bench.put()["artifact_id"], "include_content": value}
    door.refused("INVALID_REQUEST", "artifact.get", wanted)


@pytest.mark.proves("machine-80")
def test_a_revision_of_another_artifact_is_not_found(door: Door, bench: Workbench) -> None:
    one, two = bench.put(), bench.put()
    wanted = {"artifact_id": one["artifact_id"], "revision_id": two["revision_id"]}
    door.refused("NOT_FOUND", "artifact.get", wanted)
    door.refused("NOT_FOUND", "artifact.get", wanted | {"revision_id": "arev_unknown"})


@pytest.mark.fault_class(21)
@pytest.mark.parametrize(
    "path",
    [
        "file:///etc/passwd",
        "../../etc/passwd",
        "/proc/self/environ",
        "C:\\Windows\\win.ini",
        "art\0id",
        "%",
        "*",
        "' OR 1=1--",
    ],
)
def test_an_id_that_looks_like_a_path_or_a_pattern_finds_nothing(door: Door, bench: Workbench, path: str) -> None:
    stored = bench.put()
    for op in ("artifact.get", "artifact.history"):
        door.refused("NOT_FOUND", op, {"artifact_id": path})
    door.refused("NOT_FOUND", "artifact.get", {"artifact_id": stored["artifact_id"], "revision_id": path})


@pytest.mark.parametrize("op", ["artifact.get", "artifact.history", "artifact.forget", "artifact.revise"])
@pytest.mark.parametrize("value", ["", " ", "a" * 257, "é" * 128 + "a", 7, None, ["art"], {"$ne": ""}], ids=ascii)
def test_an_id_is_a_string_of_1_to_256_bytes(door: Door, specimen_inputs: dict[str, Any], op: str, value: Any) -> None:
    door.refused("INVALID_REQUEST", op, specimen_inputs[op] | {"artifact_id": value})
    door.refused("NOT_FOUND", op, specimen_inputs[op] | {"artifact_id": "é" * 128})


@pytest.mark.proves("machine-90")
@pytest.mark.fault_class(61)
@pytest.mark.parametrize("media_type", ["text/plain", "application/json", "text/markdown; charset=utf-8"])
def test_text_that_is_no_utf8_is_found_by_title_and_not_by_body(bench: Workbench, media_type: str) -> None:
    broken = bench.put(b"celadon \xff\xfe glaze", title="stoneware", media_type=media_type)
    whole = bench.put("celadon glaze", title="porcelain")
    assert bench.found("celadon glaze") == [whole["artifact_id"]]
    (hit,) = bench.search("stoneware")["hits"]
    assert hit["entity_id"] == broken["artifact_id"]
    assert "#" not in hit["citation"]
    assert body_of(bench.get(broken["artifact_id"])) == b"celadon \xff\xfe glaze"
