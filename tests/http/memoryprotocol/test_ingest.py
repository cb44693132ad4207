"""`POST /v1/ingest` (contract §5)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from http_support import Caller, Scripted, envelope, serving

from memoree import limits
from memoree.assembly import embedded_service
from memoree.http.app import create_app
from memoree.http.memoryprotocol.door import KEY_BYTES_MAX
from memoree.http.settings import HttpSettings
from memoree.service import Reply

from .conftest import As
from .protocol import ABSENT, ULID, Protocol, as_pair, commits, refused, stored_ids

WORDS = {"source": "kiln:log", "content": "cone 6 reached"}
OTHER = "01KJR4GZXJDFPSG3SB9V65FA1F"
DISTINCT = 200
WORKERS = 16


def unchanged(a: Protocol, store: Path, body: Any, status: int, **headers: str) -> str:
    """The message of a refusal of what must leave the store alone."""
    before = commits(store)
    message = refused(a.send(body, **headers), status, "validate")
    assert commits(store) == before
    return message


@pytest.mark.proves("memoryprotocol-21")
def test_the_answer_to_a_minimal_body_is_its_lsn_and_whether_the_queue_lags(a: Protocol) -> None:
    response = a.send(WORDS)
    assert response.status_code == 200
    assert set(response.json()) == {"lsn", "queue_lag_warn"}
    assert response.json()["queue_lag_warn"] is False
    lsn = response.json()["lsn"]
    assert set(lsn) == {"wall_ms", "counter"}
    assert type(lsn["counter"]) is int and type(lsn["wall_ms"]) is int
    assert abs(lsn["wall_ms"] / 1000 - time.time()) < 5


@pytest.mark.proves("memoryprotocol-22")
def test_every_one_of_many_at_once_has_an_lsn_of_its_own(a: Protocol) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        lsns = list(pool.map(lambda number: as_pair(a.ingest(f"text {number}")), range(DISTINCT)))
    assert len(set(lsns)) == DISTINCT
    assert as_pair(a.ingest("after them all")) > max(lsns)


class SteppingClock:
    """A wall clock that goes back."""

    now = datetime(2026, 3, 2, 20, 41, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def stepping(tmp_path: Path, stack: ExitStack) -> Iterator[tuple[Protocol, SteppingClock]]:
    clock = SteppingClock()
    service = embedded_service(tmp_path / "stepping", clock=clock)
    stack.callback(service.close_sync)
    caller = Protocol(stack.enter_context(serving(create_app(service, HttpSettings()))))
    stack.callback(caller.close)
    yield caller, clock


@pytest.mark.proves("memoryprotocol-22")
def test_lsns_increase_also_when_the_clock_goes_back(stepping: tuple[Protocol, SteppingClock]) -> None:
    caller, clock = stepping
    lsns = []
    for step in (0, 0, -60, -3600, 0, 7200):
        clock.now += timedelta(seconds=step)
        lsns += [as_pair(caller.ingest(f"{len(lsns)}")) for _ in range(3)]
    assert lsns == sorted(set(lsns))


@pytest.mark.proves("memoryprotocol-23")
def test_a_given_id_is_the_id_and_a_new_ulid_is_made_where_there_is_none(a: Protocol, store_a: Path) -> None:
    a.ingest(id=ABSENT)
    assert a.episode(ABSENT)["id"] == ABSENT
    a.ingest("without an id")
    a.ingest("with null for one", id=None)
    first, *made = stored_ids(store_a)
    assert first == ABSENT
    assert len({first, *made}) == 3
    for each, content in zip(made, ("without an id", "with null for one"), strict=True):
        assert ULID.fullmatch(each)
        assert a.episode(each)["content"] == content


@pytest.mark.proves("memoryprotocol-24")
@pytest.mark.parametrize(
    "episode_id",
    [ABSENT[:25], f"{ABSENT}0", f"{ABSENT[:25]}U", f"{ABSENT[:25]}I", f"8{ABSENT[1:]}", "", 7, f"{ABSENT[:25]}\u0661"],
)
def test_what_is_no_ulid_is_refused(a: Protocol, store_a: Path, episode_id: Any) -> None:
    assert "id" in unchanged(a, store_a, {**WORDS, "id": episode_id}, 422)


@pytest.mark.proves("memoryprotocol-24")
def test_the_last_ulid_and_a_lower_case_one_and_null_are_accepted(a: Protocol) -> None:
    a.ingest(id="7" + "Z" * 25)
    a.ingest(id=ABSENT.lower())
    a.ingest(id=None, t_ref=None)
    assert a.episode("7" + "Z" * 25)["id"] == "7" + "Z" * 25
    assert a.episode(ABSENT)["id"] == ABSENT


@pytest.mark.proves("memoryprotocol-25")
@pytest.mark.parametrize("member", ["source", "content"])
@pytest.mark.parametrize("value", [None, 7, ["x"], {}, True, ...])
def test_a_source_and_a_content_are_texts_and_required(a: Protocol, store_a: Path, member: str, value: Any) -> None:
    body = {name: text for name, text in WORDS.items() if name != member or value is not ...}
    if value is not ...:
        body[member] = value
    assert member in unchanged(a, store_a, body, 422)


@pytest.mark.proves("memoryprotocol-25")
@pytest.mark.parametrize("body", [[], "text", 7, None])
def test_a_body_that_is_no_object_is_of_the_wrong_shape(a: Protocol, store_a: Path, body: Any) -> None:
    unchanged(a, store_a, json.dumps(body).encode(), 422)


def test_texts_may_be_empty(a: Protocol) -> None:
    a.ingest("", "", id=ABSENT)
    found = a.episode(ABSENT)
    assert (found["source"], found["content"]) == ("", "")


@pytest.mark.parametrize(
    "text",
    ["\0", "a\0b", " \n", "e\u0301 \u202e 釉薬 🏺", "x" * 300_000],
    ids=["nul", "inside", "blank", "signs", "long"],
)
def test_a_text_comes_back_as_it_was(a: Protocol, text: str) -> None:
    a.ingest(text, text[:1000], id=ABSENT)
    found = a.episode(ABSENT)
    assert (found["source"], found["content"]) == (text[:1000], text)


def test_a_source_has_a_bound_that_is_named(a: Protocol, store_a: Path) -> None:
    a.ingest(source="é" * (limits.EPISODE_SOURCE_BYTES_MAX // 2))
    too_long = {**WORDS, "source": "é" * (limits.EPISODE_SOURCE_BYTES_MAX // 2) + "x"}
    assert str(limits.EPISODE_SOURCE_BYTES_MAX) in unchanged(a, store_a, too_long, 422)


@pytest.mark.proves("memoryprotocol-26", "memoryprotocol-99")
@pytest.mark.parametrize("body", [b"{", b"", b"\xff", b'{"source": "\\ud800", "content": ""}', b"NaN", b"{}{}"])
def test_a_body_that_is_no_json_is_400(a: Protocol, store_a: Path, body: bytes) -> None:
    assert "Traceback" not in unchanged(a, store_a, body, 400)


@pytest.mark.proves("memoryprotocol-26", "memoryprotocol-99")
@pytest.mark.parametrize("media_type", ["text/plain", "application/x-ndjson", "application/json; charset=latin-1"])
def test_another_content_type_is_415(a: Protocol, store_a: Path, media_type: str) -> None:
    unchanged(a, store_a, WORDS, 415, Content_Type=media_type)


@pytest.mark.proves("memoryprotocol-26", "memoryprotocol-99")
def test_a_body_over_two_mib_is_413_however_it_is_sent(a: Protocol, store_a: Path) -> None:
    body = json.dumps({**WORDS, "content": "x" * (3 * limits.MIB)}).encode()
    unchanged(a, store_a, body, 413)
    before = commits(store_a)
    headers = {"Content-Type": "application/json"}
    chunked = a.http.post(
        "/v1/ingest", content=(body[at : at + 65536] for at in range(0, len(body), 65536)), headers=headers
    )
    refused(chunked, 413, "validate")
    assert commits(store_a) == before


def test_a_body_of_two_mib_is_stored_whole(a: Protocol) -> None:
    text = "x" * (2 * limits.MIB - len(json.dumps({"id": ABSENT, "source": "s", "content": ""})))
    a.ingest(text, "s", id=ABSENT)
    assert a.episode(ABSENT)["content"] == text


@pytest.mark.proves("memoryprotocol-27")
@pytest.mark.parametrize(
    "t_ref", ["2026-04-21T10:30:00Z", "2026-04-21T10:30:00+07:00", "2026-04-21T10:30:00.123456-00:30"]
)
def test_a_reference_time_with_an_offset_is_stored_as_it_was_sent(a: Protocol, t_ref: str) -> None:
    """And moves no interval: `bt` is of the clock that ingested."""
    lsn = a.ingest(id=ABSENT, t_ref=t_ref)
    found = a.episode(ABSENT)
    assert found["t_ref"] == t_ref
    assert found["bt"]["valid"][0] == {**lsn, "node_id": 0}


@pytest.mark.proves("memoryprotocol-27")
@pytest.mark.parametrize(
    "t_ref", ["yesterday", "", "2026-04-21", "2026-04-21T10:30:00", "2026-02-30T10:30:00Z", 1776767400]
)
def test_what_is_no_instant_is_refused(a: Protocol, store_a: Path, t_ref: Any) -> None:
    message = unchanged(a, store_a, {**WORDS, "t_ref": t_ref}, 422)
    assert message.startswith("t_ref: ")


@pytest.mark.proves("memoryprotocol-28")
def test_nested_metadata_comes_back_equal(a: Protocol) -> None:
    metadata = {"n": 1, "f": 1.5, "no": None, "yes": True, "deep": {"list": [1, None, {"釉": "薬"}], "": {}}, "s": "1"}
    a.ingest(id=ABSENT, metadata=metadata)
    found = a.episode(ABSENT)["metadata"]
    assert found == metadata
    assert list(found) == list(metadata)
    a.ingest("none of it", id=OTHER)
    assert a.episode(OTHER)["metadata"] == {}


@pytest.mark.proves("memoryprotocol-28")
@pytest.mark.parametrize("metadata", [[], None, "text", 7])
def test_metadata_is_an_object(a: Protocol, store_a: Path, metadata: Any) -> None:
    assert "metadata" in unchanged(a, store_a, {**WORDS, "metadata": metadata}, 422)


def test_metadata_has_bounds_that_are_named(a: Protocol, store_a: Path) -> None:
    wide = {**WORDS, "metadata": {"x": "y" * limits.METADATA_BYTES_MAX}}
    assert str(limits.METADATA_BYTES_MAX) in unchanged(a, store_a, wide, 422)
    deep: dict[str, Any] = {}
    for _ in range(limits.METADATA_DEPTH_MAX):
        deep = {"in": deep}
    assert str(limits.METADATA_DEPTH_MAX) in unchanged(a, store_a, {**WORDS, "metadata": deep}, 422)


@pytest.mark.proves("memoryprotocol-32")
def test_whether_the_tenants_queue_lags_is_told(scripted_protocol: Protocol, scripted: Scripted) -> None:
    """What counts as a lag is `queue_lag`'s to say."""
    stored = {
        "episode_id": ABSENT,
        "artifact_id": "art_x",
        "revision_id": "arev_x",
        "lsn": {"wall_ms": 1, "counter": 0},
    }
    scripted.answer = lambda request: Reply({"ok": True, "result": stored}, 200, snapshot_commit_seq=1)
    for scripted.lag in (False, True):
        assert scripted_protocol.send(WORDS).json()["queue_lag_warn"] is scripted.lag


# --- again, and again -------------------------------------------------------------------------------------------


@pytest.mark.proves("memoryprotocol-33")
def test_the_same_id_with_another_content_is_a_replacement(a: Protocol, store_a: Path) -> None:
    first = a.ingest("before", "old", id=ABSENT, t_ref="2026-04-21T10:30:00Z", metadata={"n": 1})
    second = a.ingest("after", "new", id=ABSENT.lower())
    assert as_pair(second) > as_pair(first)
    found = a.episode(ABSENT)
    assert (found["content"], found["source"], found["t_ref"], found["metadata"]) == ("after", "new", None, {})
    assert found["bt"]["sys"] == [{**second, "node_id": 0}, None]
    assert stored_ids(store_a) == [ABSENT]


@pytest.mark.parametrize(
    "changed",
    [{"content": "cone 7"}, {"source": "other"}, {"t_ref": "2026-04-21T10:30:01Z"}, {"metadata": {"n": True}}],
    ids=lambda changed: next(iter(changed)),
)
def test_an_identical_repeat_changes_nothing_and_any_other_one_does(
    a: Protocol, store_a: Path, changed: dict[str, Any]
) -> None:
    body = {**WORDS, "id": ABSENT, "t_ref": "2026-04-21T10:30:00Z", "metadata": {"n": 1, "m": {"x": 2, "y": 3}}}
    first = a.send(body)
    before = commits(store_a)
    again = a.send({**body, "metadata": {"m": {"y": 3, "x": 2}, "n": 1}})
    assert (again.status_code, again.json()["lsn"]) == (200, first.json()["lsn"])
    assert commits(store_a) == before
    assert as_pair(a.send(body | changed).json()["lsn"]) > as_pair(first.json()["lsn"])


def test_a_key_makes_a_repeat_of_what_has_no_id_one_episode(a: Protocol, store_a: Path) -> None:
    first = a.send(WORDS, Idempotency_Key="morning")
    again = a.send(WORDS, Idempotency_Key="morning")
    assert (again.status_code, again.json()) == (200, first.json())
    assert len(stored_ids(store_a)) == 1
    assert a.send(WORDS, Idempotency_Key="evening").json()["lsn"] != first.json()["lsn"]
    assert len(stored_ids(store_a)) == 2
    told = unchanged(a, store_a, {**WORDS, "content": "another"}, 422, Idempotency_Key="morning")
    assert "'morning'" in told


def test_a_key_is_one_text_of_a_bounded_length(a: Protocol, store_a: Path) -> None:
    assert a.send(WORDS, Idempotency_Key="k" * KEY_BYTES_MAX).status_code == 200
    for key in ("", "k" * (KEY_BYTES_MAX + 1)):
        assert str(KEY_BYTES_MAX) in unchanged(a, store_a, WORDS, 422, Idempotency_Key=key)
    headers = [("Content-Type", "application/json"), ("Idempotency-Key", "one"), ("Idempotency-Key", "two")]
    refused(a.http.post("/v1/ingest", json=WORDS, headers=headers), 422, "validate")
    latin = [(b"Content-Type", b"application/json"), (b"Idempotency-Key", b"\xe9")]
    refused(a.http.post("/v1/ingest", json=WORDS, headers=latin), 422, "validate")


def test_a_key_of_this_door_is_none_of_the_machine_protocols(a: Protocol, stack: ExitStack, as_token: As) -> None:
    caller = Caller(str(a.http.base_url), "tok-a")
    stack.callback(caller.close)
    note = {"kind": "note", "title": "t", "content": {"type": "text", "data": "c"}}
    default = {"workspace_id": "wsp_default", "project_id": "prj_default"}
    assert caller.post(envelope("artifact.put", note, key="shared", context=default)).status_code == 200
    assert a.send(WORDS, Idempotency_Key="shared").status_code == 200


def test_the_operations_behind_the_routes_are_offered_by_no_other_door(a: Protocol, stack: ExitStack) -> None:
    caller = Caller(str(a.http.base_url), "tok-a")
    stack.callback(caller.close)
    for operation, input in (("episode.ingest", WORDS), ("episode.get", {"id": ABSENT})):
        response = caller.post(envelope(operation, input, key="k"))
        assert (response.status_code, response.json()["error"]["code"]) == (400, "INVALID_REQUEST")


# --- what the other protocols do to the artifact -----------------------------------------------------------------


def test_what_the_machine_protocol_does_to_the_artifact_it_does_to_the_episode(a: Protocol, stack: ExitStack) -> None:
    """Forgotten, it is gone, and the id may be used again."""
    caller = Caller(str(a.http.base_url), "tok-a")
    stack.callback(caller.close)
    default = {"workspace_id": "wsp_default", "project_id": "prj_default"}

    def call(op: str, **input: Any) -> Any:
        response = caller.post(envelope(op, input, key=f"{op}{len(json.dumps(input))}", context=default))
        assert response.status_code == 200, response.text
        return response.json()["result"]

    a.ingest("the damper sticks", "talk:standup", id=ABSENT, metadata={"who": "Ana"})
    [listed] = a.http.get("/v1/artifacts", params={**default, "kind": "episode"}).json()["items"]
    assert listed["title"] == "talk:standup"
    artifact = {"artifact_id": listed["artifact_id"]}
    content = {"type": "text", "data": "the damper stuck"}
    call("artifact.revise", **artifact, if_revision=listed["revision_id"], content=content)
    found = a.episode(ABSENT)
    assert (found["content"], found["source"], found["metadata"]) == (
        "the damper stuck",
        "talk:standup",
        {"who": "Ana"},
    )

    call("artifact.forget", **artifact, reason="oiled")
    refused(a.get(ABSENT), 404, "episode_not_found")
    a.ingest("it sticks again", "talk:standup", id=ABSENT)
    assert a.episode(ABSENT)["content"] == "it sticks again"
    again = a.http.get("/v1/artifacts", params={**default, "kind": "episode"}).json()["items"]
    assert [each["artifact_id"] for each in again] != [listed["artifact_id"]]

    put = call("artifact.put", kind="episode", title="Put", content=content, provenance={"by": "hand"})
    found = a.episode(put["artifact_id"].removeprefix("art_"))
    assert (found["source"], found["content"], found["metadata"]) == ("Put", "the damper stuck", {"by": "hand"})
    assert call("verify")["issues"] == []


# --- a write that is not decided in time -------------------------------------------------------------------------


def test_a_write_still_pending_is_503_and_says_when_to_come_back(
    scripted_protocol: Protocol, scripted: Scripted
) -> None:
    response = scripted_protocol.send(WORDS, Idempotency_Key="k")
    refused(response, 503, "write_pending")
    assert int(response.headers["retry-after"]) >= 1
    assert scripted.keys == ["memoryprotocol/k"]


def test_an_episode_is_read_after_a_look_at_head(scripted_protocol: Protocol, scripted: Scripted) -> None:
    scripted_protocol.get(ABSENT)
    assert scripted.strong == [True]


def test_the_request_id_comes_back(a: Protocol) -> None:
    for path in (f"/v1/episode/{ABSENT}", "/v1/episode/no-id"):
        assert a.request("GET", path, headers={"X-Request-Id": "trace-17"}).headers["x-request-id"] == "trace-17"
    for given in ("", "x" * 257):
        made = a.request("GET", f"/v1/episode/{ABSENT}", headers={"X-Request-Id": given}).headers["x-request-id"]
        assert made.startswith("req_")
    latin = a.http.get(f"/v1/episode/{ABSENT}", headers=[(b"X-Request-Id", b"\xe9")])
    assert latin.headers["x-request-id"].startswith("req_")


def test_the_answer_names_the_commit_it_was_read_at(a: Protocol, store_a: Path) -> None:
    stored = a.send({**WORDS, "id": ABSENT})
    assert stored.headers["memoree-commit-seq"] == str(commits(store_a))
    a.ingest("one more")
    assert a.get(ABSENT).headers["memoree-commit-seq"] == str(commits(store_a))
