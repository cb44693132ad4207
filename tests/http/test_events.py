"""`GET /v1/events`: every commit once and in order, waits that end, and places that a restore took back."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from http_support import Caller, Json, Scripted, envelope, serving, wait_for

from memoree import limits
from memoree.assembly import embedded_service
from memoree.embedded import EmbeddedService
from memoree.errors import Code, MemoreeError
from memoree.http.app import create_app
from memoree.http.events import SECONDS_LEFT
from memoree.http.settings import HttpSettings
from memoree.jobs.embedded import EmbeddedTenancy
from memoree.jobs.erase import erase_in_directory
from memoree.jobs.restore import Options
from memoree.jobs.restore_directory import restore_directory
from memoree.service import Reply, Request, read_reply

OpenTenants = Callable[..., Callable[[str | None], Caller]]
NOTHING: Json = {"events": [], "next_after": 0, "next_event_id": None}


def feed(caller: Caller, after: int = 0, **parameters: Any) -> Json:
    response = asked(caller, after=after, **parameters)
    assert response.status_code == 200, response.text
    page: Json = response.json()
    assert response.headers.get("memoree-commit-seq") == str(page["commit_seq"])
    return page


def asked(caller: Caller, **parameters: Any) -> httpx.Response:
    return caller.http.get("/v1/events", params=parameters)


def numbers(page: Json) -> list[int]:
    return [event["commit_seq"] for event in page["events"]]


class Waiting(threading.Thread):
    """A request for changes under way; its answer and how long it took."""

    def __init__(self, caller: Caller, after: int, wait: float = 20, **parameters: Any) -> None:
        super().__init__()
        self._asking = Caller(caller.base_url)
        self._parameters = {"after": after, "wait": int(wait), **parameters}
        self.page: Json = {}
        self.seconds = 0.0
        self.start()

    def run(self) -> None:
        began = time.monotonic()
        with suppress(httpx.TransportError):
            self.page = asked(self._asking, **self._parameters).json()
        self.seconds = time.monotonic() - began
        self._asking.close()

    def ended(self) -> Json:
        self.join(25)
        assert not self.is_alive(), "it still waits"
        return self.page


def waits(store: EmbeddedService) -> int:
    return len(store._changes._waiting) if store._changes is not None else 0


# --- pages ------------------------------------------------------------------------------------------------------


def test_every_commit_is_shown_once_in_order_whatever_the_pages(caller: Caller) -> None:
    for number in range(7):
        caller.put(f"firing {number}")
    after, seen = 0, []
    while page := feed(caller, after, limit=3)["events"]:
        assert len(page) <= 3
        seen += [event["commit_seq"] for event in page]
        after = seen[-1]
    assert seen == list(range(1, 8))
    assert feed(caller, 7) == {
        "events": [],
        "next_after": 7,
        "next_event_id": feed(caller, 6)["next_event_id"],
        "commit_seq": 7,
    }


def test_an_event_tells_what_was_done_to_what(caller: Caller) -> None:
    artifact = caller.put("cone 6")
    revise = {"artifact_id": artifact["artifact_id"], "if_revision": artifact["revision_id"]}
    content = {"content": {"type": "text", "data": "cone 10"}, "actor": "agent/kiln"}
    revised = caller.post(envelope("artifact.revise", revise | content, key="k")).json()["result"]
    first, second = feed(caller)["events"]
    assert set(first) == {
        *("commit_seq", "event_id", "lsn", "created_at", "operation", "entity_type", "entity_id", "revision_id"),
        *("details", "also"),
    }
    assert (first["operation"], first["entity_type"], first["entity_id"], first["revision_id"]) == (
        "artifact.put",
        "artifact",
        artifact["artifact_id"],
        artifact["revision_id"],
    )
    assert (first["details"], first["also"]) == ({"status": "active"}, [])
    assert (second["operation"], second["revision_id"]) == ("artifact.revise", revised["revision_id"])
    assert second["actor"] == "agent/kiln"
    assert first["event_id"] != second["event_id"]
    assert tuple(first["lsn"].values()) < tuple(second["lsn"].values())
    assert first["created_at"] == artifact["created_at"]


def test_an_event_names_the_other_entities_it_changed(caller: Caller) -> None:
    def claim(statement: str) -> Json:
        said = {"claim_type": "fact", "statement": statement}
        made: Json = caller.post(envelope("claim.assert", said, key=statement)).json()["result"]
        return made

    one, other = claim("It holds cone 6."), claim("It holds cone 10.")
    edge = {"source_type": "claim", "source_id": one["claim_id"], "target_type": "claim"}
    edge |= {"target_id": other["claim_id"], "relation": "contradicts"}
    assert caller.post(envelope("relation.put", edge, key="edge")).status_code == 200
    (event,) = feed(caller, 2)["events"]
    assert {change["entity_id"]: change["status"] for change in event["also"]} == {
        one["claim_id"]: "conflicted",
        other["claim_id"]: "conflicted",
    }
    assert "also" not in event["details"]


def test_an_empty_store_has_no_events(caller: Caller) -> None:
    assert feed(caller) == NOTHING | {"commit_seq": 0}


def test_a_page_of_large_events_ends_early_and_none_is_lost(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_PAGE_BYTES_MAX", 1000)
    for number in range(6):
        caller.put(f"firing {number}")
    first = feed(caller)
    assert 0 < len(first["events"]) < 6
    rest = feed(caller, first["next_after"], after_event_id=first["next_event_id"])
    assert numbers(rest)[0] == first["next_after"] + 1


def test_more_than_a_page_may_have_counts_as_that_many(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_EVENTS_MAX", 2)
    for number in range(3):
        caller.put(f"firing {number}")
    assert numbers(feed(caller, limit=10**12)) == [1, 2]


@pytest.mark.parametrize(
    "query",
    ["after=-1", "after=x", "after=1.5", "after=", "after=1&after=2", "wait=-1", "limit=0", "since=1", "after=9" * 9],
)
def test_parameters_that_cannot_be_meant_are_refused(caller: Caller, query: str) -> None:
    response = caller.http.get(f"/v1/events?{query}")
    assert (response.status_code, response.json().get("error", {}).get("code")) == (400, "INVALID_REQUEST")


def test_it_needs_a_token_and_its_scope_and_shows_one_tenants_events(open_tenants: OpenTenants) -> None:
    as_token = open_tenants()
    as_token("tok-a").put("of A")
    assert asked(as_token(None)).status_code == 401
    assert asked(as_token("tok-in")).status_code == 403
    assert numbers(feed(as_token("tok-a"))) == [1]
    assert feed(as_token("tok-b"))["events"] == []


def test_events_of_every_protocol_are_there(caller: Caller) -> None:
    caller.http.post("/v1/ingest", json={"source": "kiln:log", "content": "cone 6"})
    (event,) = feed(caller)["events"]
    assert (event["operation"], event["entity_type"]) == ("episode.ingest", "artifact")


# --- waits ------------------------------------------------------------------------------------------------------


def test_a_wait_ends_with_the_first_commit(caller: Caller, store: EmbeddedService) -> None:
    caller.put("first")
    waiting = Waiting(caller, 1)
    wait_for(lambda: waits(store) == 1, "the wait")
    caller.put("second")
    assert numbers(waiting.ended()) == [2]
    assert waiting.seconds < 10


def test_a_wait_ends_with_a_commit_of_another_process(caller: Caller, store: EmbeddedService, tmp_path: Path) -> None:
    waiting = Waiting(caller, 0)
    wait_for(lambda: waits(store) == 1, "the wait")
    other = embedded_service(tmp_path / "store")
    said = {"claim_type": "fact", "statement": "Said elsewhere."}
    other.call_bytes(json.dumps(envelope("claim.assert", said, key="k")).encode())
    other.close_sync()
    assert numbers(waiting.ended()) == [1]


def test_a_wait_ends_with_its_time_and_without_one_there_is_none(caller: Caller) -> None:
    began = time.monotonic()
    assert feed(caller)["events"] == []
    assert time.monotonic() - began < 1
    waiting = Waiting(caller, 0, wait=1)
    assert waiting.ended() == NOTHING | {"commit_seq": 0}
    assert 1 <= waiting.seconds < 5


def test_what_is_there_already_is_answered_at_once(caller: Caller) -> None:
    caller.put("first")
    waiting = Waiting(caller, 0)
    assert numbers(waiting.ended()) == [1]
    assert waiting.seconds < 5


def test_longer_than_a_wait_may_be_counts_as_that_long(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_WAIT_SECONDS_MAX", 0.2)
    assert Waiting(caller, 0, wait=10**9).ended() == NOTHING | {"commit_seq": 0}


def test_a_server_that_stops_ends_every_wait_with_an_answer(store: EmbeddedService) -> None:
    with serving(create_app(store, HttpSettings())) as base_url:
        caller = Caller(base_url)
        several = [Waiting(caller, 0) for _ in range(4)]
        wait_for(lambda: waits(store) == 4, "the waits")
    for waiting in several:
        assert waiting.ended() == NOTHING | {"commit_seq": 0}
        assert waiting.seconds < 10
    caller.close()


def test_who_hangs_up_leaves_nothing_behind(
    caller: Caller, store: EmbeddedService, caplog: pytest.LogCaptureFixture
) -> None:
    feed(caller)
    address = urlsplit(caller.base_url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(b"GET /v1/events?after=0&wait=20 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        wait_for(lambda: waits(store) == 1, "the wait")
    wait_for(lambda: waits(store) == 0, "its end")
    changes = store._changes
    assert changes is not None
    wait_for(lambda: changes._looking is None, "the end of looking")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_those_who_wait_are_bounded_and_others_are_served_meanwhile(
    caller: Caller, store: EmbeddedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FEED_WAITS_MAX", 4)
    several = [Waiting(caller, 0) for _ in range(2)]
    wait_for(lambda: waits(store) == 2, "the waits")
    refused = asked(caller, wait=20)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "TRANSPORT_ERROR")
    assert int(refused.headers["retry-after"]) >= 1
    assert feed(caller)["events"] == []
    caller.put("first")
    assert [numbers(waiting.ended()) for waiting in several] == [[1], [1]]


def test_no_wait_is_longer_than_who_serves_it_has_time(store: EmbeddedService) -> None:
    """As a function says in the scope of its requests."""
    app = create_app(store, HttpSettings())

    async def run() -> tuple[int, float]:
        async def hurried(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, SECONDS_LEFT: 0.3}, receive, send)

        transport = httpx.ASGITransport(app=hurried)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            began = time.monotonic()
            response = await client.get("/v1/events?wait=20")
            seconds = time.monotonic() - began
        await store._changes.close() if store._changes is not None else None
        return response.status_code, seconds

    status, seconds = asyncio.run(run())
    assert status == 200
    assert 0.3 <= seconds < 5


class Failing(Scripted):
    """A store whose changes cannot be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = self.nothing

    def nothing(self, request: Request) -> Reply:
        return read_reply(request.call, NOTHING, 0)

    async def newer(self, tenant: str, commit_seq: int, seconds: float) -> bool:
        raise MemoreeError(Code.INTEGRITY_ERROR, "head is missing")


def test_damage_that_is_found_while_waiting_is_told(stack: ExitStack) -> None:
    caller = Caller(stack.enter_context(serving(create_app(Failing(), HttpSettings()))))
    stack.callback(caller.close)
    response = asked(caller, wait=5)
    assert (response.status_code, response.json()["error"]["code"]) == (500, "INTEGRITY_ERROR")


# --- erasures and restores --------------------------------------------------------------------------------------


def test_what_an_erasure_took_out_stays_out(caller: Caller, store: EmbeddedService) -> None:
    register = {"name": "wiki", "kind": "wiki"}
    source = caller.post(envelope("source.register", register, key="s")).json()["result"]
    item = {"source_id": source["source_id"], "external_id": "page-of-celadon", "external_revision": "celadon-1"}
    item |= {"kind": "page", "title": "celadon", "content": {"type": "text", "data": "celadon"}}
    delivered = caller.post(envelope("source.ingest", item | {"actor": "celadon"}, key="i")).json()["result"]
    assert "celadon" in asked(caller).text
    doomed = [delivered["artifact"]["artifact_id"]]
    asyncio.run(erase_in_directory(EmbeddedTenancy(store), doomed, "asked for"))
    page = feed(caller)
    assert "celadon" not in json.dumps(page)
    assert numbers(page) == list(range(1, page["commit_seq"] + 1))
    assert page["events"][-1]["operation"] == "store.erase"


def test_what_was_deleted_for_good_is_in_no_event(caller: Caller) -> None:
    caller.http.post("/v1/ingest", json={"source": "celadon:log", "content": "celadon"})
    target = {"target": {"Scope": {"BySource": "celadon:"}}}
    receipt = caller.http.post("/v1/forget", json=target | {"dry_run": True})
    confirmed = target | {"hard": True, "confirmation_token": receipt.text}
    assert "celadon" in asked(caller).text
    assert caller.http.post("/v1/forget", json=confirmed).status_code == 200
    assert "celadon" not in asked(caller).text


@pytest.fixture
def restored(caller: Caller, store: EmbeddedService, tmp_path: Path) -> Iterator[Json]:
    """The page that a follower had read, up to commit 5, before the store went back to commit 2 with commit 6."""
    for number in range(2):
        caller.put(f"kept {number}")
    backup = tmp_path / "backup"
    made = caller.post(envelope("backup.create", {"destination": str(backup)}))
    assert made.status_code == 200, made.text
    for number in range(3):
        caller.put(f"undone {number}")
    read = feed(caller)
    asyncio.run(restore_directory(store, tmp_path / "store", backup, Options(replace=True)))
    yield read


@pytest.mark.parametrize("after", [3, 4, 5])
def test_a_follower_whose_place_was_taken_back_is_told_where_to_go_on(
    caller: Caller, restored: Json, after: int
) -> None:
    response = asked(caller, after=after)
    assert (response.status_code, response.json().get("error", {}).get("code")) == (410, "NOT_FOUND")
    assert response.json()["error"]["details"] == {"kind": "history_changed", "resume_after": 2, "commit_seq": 6}
    assert "after 2" in response.json()["error"]["message"]


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_follower_who_saw_nothing_of_it_reads_on_and_hears_of_the_restore(
    caller: Caller, restored: Json, after: int
) -> None:
    page = feed(caller, after)
    assert numbers(page) == [*range(after + 1, 3), 6]
    told = page["events"][-1]
    assert told["operation"] == "store.restored"
    assert (told["details"]["from"], told["details"]["to"]) == (5, 2)


def test_the_id_of_the_last_event_proves_the_place_also_when_its_number_is_taken(
    caller: Caller, restored: Json
) -> None:
    for number in range(3):
        caller.put(f"anew {number}")
    known = feed(caller, 5 + 1)
    assert numbers(feed(caller, known["next_after"], after_event_id=known["next_event_id"])) == []
    other = asked(caller, after=7, after_event_id=restored["next_event_id"])
    assert other.status_code == 410
    assert other.json()["error"]["details"]["resume_after"] == 2
    kept = restored["events"][1]
    assert numbers(feed(caller, 2, after_event_id=kept["event_id"])) == [6, 7, 8, 9]


def test_a_place_ahead_of_the_store_is_none_of_its_own(caller: Caller) -> None:
    caller.put("first")
    response = asked(caller, after=2, wait=20)
    assert response.status_code == 410
    assert response.json()["error"]["details"] == {"kind": "history_changed", "resume_after": 0, "commit_seq": 1}


def test_a_restore_wakes_who_waits(caller: Caller, store: EmbeddedService, tmp_path: Path) -> None:
    caller.put("kept")
    made = caller.post(envelope("backup.create", {"destination": str(tmp_path / "backup")}))
    assert made.status_code == 200, made.text
    caller.put("undone")
    waiting = Waiting(caller, 2)
    wait_for(lambda: waits(store) == 1, "the wait")
    asyncio.run(restore_directory(store, tmp_path / "store", tmp_path / "backup", Options(replace=True)))
    told = waiting.ended()
    assert told["error"]["details"]["resume_after"] == 1
