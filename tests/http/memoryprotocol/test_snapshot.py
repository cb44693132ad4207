"""`GET /v1/snapshot/{lsn}` (contract §9)."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from http_support import Caller, Scripted, envelope, wait_for

from memoree import limits
from memoree.service import Reply, Request, read_reply

from .conftest import As
from .protocol import ABSENT, ULID, Json, Protocol, as_pair, refused

LONG = "".join(f"# Firing {number}\n\ncone {number % 11} reached, glaze {number}.\n\n" for number in range(900))
"""A blob, in many chunks."""


def at(lsn: Mapping[str, int]) -> str:
    return f"{lsn['wall_ms']}.{lsn['counter']}"


def now() -> str:
    """The end of the present millisecond."""
    return f"{time.time_ns() // 1_000_000}.4294967295"


def lines(client: Protocol, position: str) -> list[Json]:
    response = client.http.get(f"/v1/snapshot/{position}")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.text == "" or response.text.endswith("\n")
    found = [json.loads(line) for line in response.text.split("\n")[:-1]]
    assert all(line.keys() == {"key", "value"} for line in found)
    return found


def episodes(client: Protocol, position: str) -> dict[str, Json]:
    return {
        each["value"]["id"]: each["value"] for each in lines(client, position) if each["key"].startswith("episode:")
    }


def chunks(client: Protocol, position: str) -> list[Json]:
    return [each["value"] for each in lines(client, position) if each["key"].startswith("chunk:")]


@pytest.mark.proves("memoryprotocol-80")
@pytest.mark.parametrize("position", ["1.2", "1.2.3", "0.0", "0001.0", f"{'0' * 5000}1.{'0' * 50}"])
def test_a_position_before_everything_is_empty(a: Protocol, position: str) -> None:
    a.ingest()
    assert lines(a, position) == []


@pytest.mark.proves("memoryprotocol-80", "memoryprotocol-82")
@pytest.mark.parametrize(
    "position", ["1", "1.", ".1", "1.2.3.4", "a.1", "-1.0", "+1.0", "1_0.0", "1.%200", "18446744073709551616.0",
                 "1.4294967296", "1.0.65536", "9223372036854775807.0.x"],
)  # fmt: skip
def test_what_is_no_position_is_400_also_in_the_future(a: Protocol, position: str) -> None:
    refused(a.request("GET", f"/v1/snapshot/{position}"), 400, "invalid_lsn")


@pytest.mark.proves("memoryprotocol-81")
def test_the_future_is_404_and_the_present_millisecond_is_not(a: Protocol) -> None:
    for position in (f"{time.time_ns() // 1_000_000 + 60_000}.0", "9223372036854775807.0", "18446744073709551615.0"):
        refused(a.request("GET", f"/v1/snapshot/{position}"), 404, "snapshot_out_of_range")
    assert lines(a, now()) == []


@pytest.mark.proves("memoryprotocol-83", "memoryprotocol-30")
def test_every_line_is_a_key_and_a_value_and_chunks_make_up_their_episodes(a: Protocol) -> None:
    assert lines(a, now()) == []
    for content in (LONG, "short", ""):
        a.ingest(content, id=ABSENT if content == LONG else None, metadata={"turn": [1, None]})
    found = lines(a, now())
    kinds = {line["key"].partition(":")[0] for line in found}
    assert kinds == {"chunk", "episode"}
    assert all(ULID.fullmatch(line["key"].partition(":")[2]) for line in found)
    assert all(line["key"].partition(":")[2] == line["value"]["id"] for line in found)
    assert len({line["key"] for line in found}) == len(found)
    text = [chunk["text"] for chunk in chunks(a, now()) if chunk["episode_id"] == ABSENT]
    assert len(text) > 10 and "".join(text) == LONG
    stored = episodes(a, now())
    assert sorted(each["content"] for each in stored.values()) == sorted([LONG, "short", ""])
    assert stored[ABSENT] == {name: each for name, each in a.episode(ABSENT).items() if name != "scope"}
    assert {chunk["episode_id"] for chunk in chunks(a, now())} <= stored.keys()


def test_whatever_a_text_holds_a_line_is_json_and_tells_it_as_it_is(a: Protocol) -> None:
    awkward = 'say "cone 6" \\ or\tnot\n\x01 \u2028 \U0001f525'
    a.ingest(awkward, id=ABSENT, source=f'"{awkward}\\', metadata={"k": awkward}, t_ref="2026-03-02T20:40:00Z")
    stored = episodes(a, now())[ABSENT]
    assert stored == {name: each for name, each in a.episode(ABSENT).items() if name != "scope"}
    [chunk] = chunks(a, now())
    assert (chunk["text"], chunk["source"], chunk["bt"]) == (awkward, stored["source"], stored["bt"])


@pytest.mark.proves("memoryprotocol-29")
def test_chunks_tell_the_headings_that_they_stand_under(a: Protocol) -> None:
    a.ingest(LONG)
    for chunk in chunks(a, now()):
        (heading,) = chunk["heading_path"]
        assert f"# {heading}\n" in LONG[: chunk["offset"]] or chunk["text"].startswith(f"# {heading}\n")


@pytest.mark.proves("memoryprotocol-84")
def test_the_position_of_an_ingest_has_its_episode_and_the_one_before_has_not(a: Protocol) -> None:
    first = a.ingest("one")
    time.sleep(0.002)
    second = a.ingest("two", id=ABSENT)
    assert ABSENT in episodes(a, at(second))
    assert ABSENT not in episodes(a, f"{second['wall_ms'] - 1}.0")
    assert len(episodes(a, at(first))) == 1


@pytest.mark.proves("memoryprotocol-85")
def test_what_is_written_while_a_slow_client_reads_is_not_shown(a: Protocol, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_PAGE_CHARACTERS", 1)  # a page a line
    for number in range(6):
        a.ingest(f"firing {number}", id=f"{ABSENT[:25]}{number}")
    position = now()
    time.sleep(0.002)
    with a.http.stream("GET", f"/v1/snapshot/{position}") as response:
        shown = response.iter_lines()
        found = [next(shown)]
        a.ingest("changed", id=f"{ABSENT[:25]}3")
        a.ingest("later")
        found += list(shown)
    told = [json.loads(line)["value"] for line in found]
    assert sorted(each["content"] for each in told if "content" in each) == [f"firing {each}" for each in range(6)]
    assert sorted(each["text"] for each in told if "text" in each) == [f"firing {each}" for each in range(6)]


@pytest.mark.proves("memoryprotocol-86")
def test_a_snapshot_stays_what_it_was(a: Protocol) -> None:
    a.ingest("first", id=ABSENT)
    position = at(a.ingest("other"))
    before = lines(a, position)
    a.ingest("second", id=ABSENT)
    a.ingest("third")
    assert lines(a, position) == before
    assert {each["content"] for each in episodes(a, now()).values()} == {"second", "other", "third"}


@pytest.mark.proves("memoryprotocol-9")
def test_a_snapshot_shows_its_own_tenant_only(as_token: As) -> None:
    as_token("tok-a").ingest("of a")
    lsn = as_token("tok-b").ingest("of b")
    assert [each["content"] for each in episodes(as_token("tok-b"), at(lsn)).values()] == ["of b"]


@pytest.mark.proves("memoryprotocol-4")
def test_it_needs_the_scope_recall(as_token: As) -> None:
    refused(as_token("tok-in").request("GET", "/v1/snapshot/0.0"), 403, "forbidden")
    assert lines(as_token("tok-read"), "0.0") == []


def test_positions_are_ordered_as_the_commits_are(a: Protocol) -> None:
    positions = [a.ingest(f"number {number}") for number in range(5)]
    assert positions == sorted(positions, key=as_pair)
    assert [len(episodes(a, at(each))) for each in positions] == [1, 2, 3, 4, 5]


def test_what_cannot_be_read_is_told_in_its_place_and_hides_nothing_else(
    a: Protocol, store_a: Path, as_token: As, stack: ExitStack
) -> None:
    machine = Caller(str(a.http.base_url), "tok-a")
    stack.callback(machine.close)
    content = {"type": "base64", "data": b64encode(b"\xff" * 20_000).decode()}
    put = envelope("artifact.put", {"kind": "episode", "title": "a picture", "content": content}, key="picture")
    record = machine.post(put).json()["result"]
    a.ingest("stays", id=f"7{ABSENT[1:]}")
    next(path for path in store_a.rglob(record["blob_hash"].removeprefix("b3:"))).unlink()
    told = [json.loads(line) for line in a.http.get(f"/v1/snapshot/{now()}").text.splitlines()]
    assert [each.get("error") or each["key"].split(":")[0] for each in told] == ["chunk", "scan_error", "episode"]
    assert record["artifact_id"].removeprefix("art_") in told[1]["message"]


def endless(asked: list[Request]) -> Callable[[Request], Reply]:
    """What answers with a page that has one after it, whatever is asked, and notes that it was."""
    page = {"lines": "{}\n" * 50_000, "seen": 1, "history": 0, "next": {"kind": "chunk"}}

    def answer(request: Request) -> Reply:
        asked.append(request)
        return read_reply(request.call, page, 1)

    return answer


def test_nothing_more_is_read_for_who_has_left(scripted_protocol: Protocol, scripted: Scripted) -> None:
    asked: list[Request] = []
    scripted.answer = endless(asked)
    with scripted_protocol.http.stream("GET", "/v1/snapshot/0.0") as response:
        next(response.iter_raw())

    def is_quiet() -> bool:
        before = len(asked)
        time.sleep(0.1)
        return len(asked) == before

    wait_for(is_quiet, "the end of the reading")


def test_who_takes_nothing_for_long_is_given_up_and_takes_no_more_than_a_share_until_then(
    scripted_protocol: Protocol, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOTS_AT_ONCE_MAX", 1)
    scripted.answer = endless([])
    with scripted_protocol.http.stream("GET", "/v1/snapshot/0.0") as unread:
        assert unread.status_code == 200
        refusal = scripted_protocol.request("GET", "/v1/snapshot/0.0")
        refused(refusal, 503, "overloaded")
        assert int(refusal.headers["retry-after"]) >= 1
        monkeypatch.setattr(limits, "STREAM_SILENCE_SECONDS_MAX", 0.1)
        wait_for(lambda: _status(scripted_protocol) == 200, "that its place is free")


def _status(client: Protocol) -> int:
    with client.http.stream("GET", "/v1/snapshot/0.0") as response:
        return response.status_code
