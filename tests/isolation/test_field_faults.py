"""Faults seen in the field, at the doors of MemoryProtocol and with a neighbour who must notice nothing."""

from __future__ import annotations

from typing import Any

import pytest

from isolation.caller import Caller, Json
from isolation.conftest import Town
from isolation.things import listed
from isolation.walk import overview
from memoree.ids import new_id, new_ulid

EPISODES = 10
SOURCE = "kiln:log"


@pytest.fixture
def one(shared_town: Town) -> Caller:
    return shared_town.callers.by_tenant["a"]


@pytest.fixture
def two(shared_town: Town) -> Caller:
    return shared_town.callers.by_tenant["a1"]


def ingested(caller: Caller, source: str = SOURCE, text: str | None = None) -> str:
    episode_id = new_ulid()
    told = {"id": episode_id, "source": source, "content": text or caller.text("episode")}
    assert caller.request("POST", "/v1/ingest", told).status_code == 200
    return episode_id


def forget(caller: Caller, target: Any, **how: Any) -> Any:
    return caller.request("POST", "/v1/forget", {"target": target, **how})


@pytest.mark.proves("isolation-2")
@pytest.mark.fault_class(13)
def test_forgetting_everything_of_one_tenant_leaves_the_next_untouched(one: Caller, two: Caller) -> None:
    for _ in range(EPISODES):
        ingested(one)
        ingested(two)
    before = overview(two)
    everything: list[tuple[Json, int]] = [
        ({"Scope": {"BySource": ""}}, 400),
        ({"Scope": {}}, 422),
        ({}, 422),
        ({"Scope": {"BySource": None}}, 422),
        ({"Id": ""}, 422),
    ]
    mine = overview(one)
    for target, status in everything:
        assert forget(one, target).status_code == status, target
    assert overview(one) == mine, "an empty target is no target"

    preview = forget(one, {"Scope": {"BySource": SOURCE}}, dry_run=True)
    assert preview.json()["matched"] == EPISODES
    done = forget(one, {"Scope": {"BySource": SOURCE}}, hard=True, confirmation_token=preview.text)
    assert (done.status_code, done.json()["rows_deleted"]) == (200, EPISODES)
    assert overview(one)["episodes"] == []
    assert overview(two) == before


@pytest.mark.fault_class(14)
@pytest.mark.parametrize("hard", [False, True])
def test_what_was_forgotten_is_on_no_surface(one: Caller, hard: bool) -> None:
    query, kept = (f"{word}{new_ulid().lower()}" for word in ("vermiculite", "feldspar"))
    episode_id = ingested(one, text=f"{query} {kept}")
    shown = surfaces(one, episode_id, query, kept)
    assert all(shown.values()), shown
    preview = forget(one, {"Id": episode_id}, dry_run=True).text
    how = {"hard": True, "confirmation_token": preview} if hard else {}
    assert forget(one, {"Id": episode_id}, **how).status_code == 200
    shown = surfaces(one, episode_id, query, kept)
    assert not any(shown.values()), shown


def surfaces(caller: Caller, episode_id: str, query: str, kept: str) -> dict[str, bool]:
    """Which of them show the episode, by a word of it that nobody asks for."""
    asked = {"query": query}
    stream = {"Accept": "text/event-stream"}
    answers = {
        "recall": caller.request("POST", "/v1/recall", asked),
        "recall as a stream": caller.request("POST", "/v1/recall", asked, stream),
        "recall by source": caller.request("POST", "/v1/recall", asked | {"filter": f"source = '{SOURCE}'"}),
        "snapshot": caller.request("GET", f"/v1/snapshot/{_now(caller)}"),
    }
    shown = {name: kept in answer.text for name, answer in answers.items()}
    shown["episode"] = caller.request("GET", f"/v1/episode/{episode_id}").status_code == 200
    for op in ("search", "memory.recall", "memory.retrieve", "context.build"):
        shown[op] = kept in str(caller.ok(op, asked | {"horizon": "personal", "reason": "to see all"}))
    return shown


def _now(caller: Caller) -> str:
    lsn = caller.request("POST", "/v1/ingest", {"source": "clock", "content": "tick"}).json()["lsn"]
    return f"{lsn['wall_ms']}.{lsn['counter']}"


@pytest.mark.fault_class(17)
@pytest.mark.fault_class(18)
def test_only_the_exact_id_of_an_episode_forgets_it(one: Caller) -> None:
    twins = [ingested(one, text="the kiln reached cone 6 at nine") for _ in range(2)]
    artifact = one.request("GET", listed("artifacts", limit=1, horizon="personal", reason="r")).json()["items"][0]
    for other in (artifact["artifact_id"], artifact["revision_id"], new_id("clm")):
        refused = forget(one, {"Id": other})
        assert (refused.status_code, refused.json()["error"]) == (422, "validate")
    assert forget(one, {"Id": twins[0]}).json()["rows_written"] == 1
    assert [one.request("GET", f"/v1/episode/{each}").status_code for each in twins] == [404, 200]


@pytest.mark.fault_class(23)
@pytest.mark.parametrize("value", ["%", "_", "*", "kiln:_og", "' OR 1=1--", "\\", '{"$ne": ""}'])
def test_a_filter_and_a_prefix_are_plain_text(one: Caller, value: str) -> None:
    ingested(one)
    found = one.request("POST", "/v1/recall", {"query": "episode", "filter": f"source = '{value}'"})
    assert found.status_code == 400 or found.json() == []
    matched = forget(one, {"Scope": {"BySource": value}}, dry_run=True).json()
    assert matched["matched"] == 0
    for widened in ({"$ne": ""}, [], None):
        assert forget(one, {"Scope": {"BySource": widened}}, dry_run=True).status_code == 422
