"""Walks through lists, and the cursors that continue them: no one else's, no other filters', and for good."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from http_support import Caller, Json, serving
from list_support import ask, assert_claim, get, page, put, put_many, refused, relate, walk

from memoree import limits
from memoree.assembly import embedded_service
from memoree.embedded import EmbeddedService
from memoree.http.app import create_app
from memoree.http.settings import HttpSettings

Tenants = Callable[[str | None], Caller]

ROWS = 1137
BASE64_URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


# --- walks ------------------------------------------------------------------------------------------------------


@pytest.mark.proves("fault-53")
@pytest.mark.parametrize("limit", [61, 100, 1000, 5000])
def test_1137_rows_are_1137_different_rows_while_others_come_and_go(caller: Caller, limit: int) -> None:
    ids = put_many(caller, ROWS + 60)
    passing, staying = ids[::20], [each for number, each in enumerate(ids) if number % 20]
    seen: list[str] = []
    for found in walk(caller, "artifacts", limit=limit):
        seen += [item["artifact_id"] for item in found["items"]]
        assert len(found["items"]) <= min(limit, limits.BROWSE_ITEMS_MAX)
        put(caller, "late")
        for doomed in (passing.pop(0), passing.pop()) if len(passing) > 1 else ():
            ask(caller, "artifact.forget", {"artifact_id": doomed, "reason": "gone"})
    assert len(seen) == len(set(seen))
    assert len(staying) == ROWS
    assert [each for each in seen if each in set(staying)] == staying[::-1]


@pytest.mark.proves("fault-53")
def test_claims_and_relations_are_walked_like_artifacts(caller: Caller) -> None:
    claims = [assert_claim(caller, f"row {number}") for number in range(14)]
    edges = [relate(caller, one, "references", two) for one, two in itertools.pairwise(claims)]
    for path, member, made in (("claims", "claim_id", claims), ("relations", "relation_id", edges)):
        pages = list(walk(caller, path, limit=3))
        assert [len(each["items"]) for each in pages] == [3, 3, 3, 3, len(made) - 12]
        assert [item[member] for each in pages for item in each["items"]] == [one[member] for one in made][::-1]


def test_a_page_of_exactly_the_rest_is_the_last(caller: Caller) -> None:
    put_many(caller, 6)
    first, last = walk(caller, "artifacts", limit=3)
    assert (len(first["items"]), len(last["items"])) == (3, 3)


def test_a_page_of_large_records_ends_early_and_the_walk_still_shows_them_all(caller: Caller) -> None:
    large = {"notes": "x" * 65_000}
    ids = put_many(caller, 140, provenance=large)
    pages = list(walk(caller, "artifacts", limit=1000))
    assert [len(each["items"]) for each in pages] == [128, 12]
    assert [item["artifact_id"] for each in pages for item in each["items"]] == ids[::-1]


# --- cursors ----------------------------------------------------------------------------------------------------


def first_cursor(caller: Caller, path: str = "artifacts", **parameters: Any) -> str:
    cursor = page(caller, path, limit=1, **parameters)["next_cursor"]
    assert isinstance(cursor, str)
    return cursor


@pytest.mark.proves("fault-53")
def test_a_cursor_altered_in_any_character_is_refused(caller: Caller) -> None:
    put_many(caller, 3)
    cursor = first_cursor(caller)
    for place, character in enumerate(cursor):
        other = BASE64_URL[BASE64_URL.index(character) ^ 1]
        altered = cursor[:place] + other + cursor[place + 1 :]
        assert "cursor" in refused(get(caller, "artifacts", cursor=altered), 400, "INVALID_REQUEST")
    for altered in (cursor[:-1], cursor[:-4], cursor + "A", cursor + "====", cursor + cursor, "x", "é" * 44, " "):
        refused(get(caller, "artifacts", cursor=altered), 400, "INVALID_REQUEST")


def test_another_spelling_of_the_same_bytes_is_no_cursor(caller: Caller) -> None:
    put_many(caller, 40)
    cursors = [each["next_cursor"] for each in walk(caller, "artifacts", limit=1)][:-1]
    respelled = [each.replace("-", "+").replace("_", "/") for each in cursors]
    assert set(respelled) - set(cursors), "no cursor has a character that can be spelled otherwise"
    for cursor in set(respelled) - set(cursors):
        refused(get(caller, "artifacts", cursor=cursor), 400, "INVALID_REQUEST")


@pytest.mark.proves("fault-53")
def test_a_cursor_of_another_tenant_is_refused(open_tenants: Callable[..., Tenants]) -> None:
    call_as = open_tenants()
    for token in ("tok-a", "tok-b"):
        put_many(call_as(token), 3)
    cursor = first_cursor(call_as("tok-a"))
    refused(get(call_as("tok-b"), "artifacts", cursor=cursor), 400, "INVALID_REQUEST")
    assert page(call_as("tok-a2"), "artifacts", cursor=cursor)["items"], "the tenant's other token may go on"


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "note"},
        {"status": "any"},
        {"source": "src_1"},
        {"created_from": "2026-01-01T00:00:00Z"},
        {"project_id": "prj_other"},
        {"task_id": "tsk_1"},
        {"horizon": "workspace", "reason": "compare"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_cursor_is_good_for_the_filters_it_was_made_with(caller: Caller, changed: Json) -> None:
    put_many(caller, 3)
    refused(get(caller, "artifacts", cursor=first_cursor(caller), **changed), 400, "INVALID_REQUEST")


def test_a_cursor_of_another_list_is_refused(caller: Caller) -> None:
    for number in range(3):
        assert_claim(caller, f"row {number}"), put(caller, f"row {number}")
    refused(get(caller, "artifacts", cursor=first_cursor(caller, "claims")), 400, "INVALID_REQUEST")


def test_spelling_out_a_default_or_another_zone_is_no_other_filter(caller: Caller) -> None:
    put_many(caller, 3)
    cursor = first_cursor(caller, created_from="2026-01-01T00:00:00Z")
    same = {"created_from": "2026-01-01T02:00:00+02:00", "status": "active", "horizon": "ambient"}
    assert len(page(caller, "artifacts", cursor=cursor, limit=9, **same)["items"]) == 2


def test_a_cursor_survives_a_restart_and_works_at_another_process(
    tmp_path: Path, store: EmbeddedService, caller: Caller, stack: ExitStack
) -> None:
    ids = put_many(caller, 3)
    cursor = first_cursor(caller)
    store.close_sync()
    again = embedded_service(tmp_path / "store")
    stack.callback(again.close_sync)
    other = Caller(stack.enter_context(serving(create_app(again, HttpSettings()))))
    stack.callback(other.close)
    rest = page(other, "artifacts", cursor=cursor)["items"]
    assert [item["artifact_id"] for item in rest] == [ids[1], ids[0]]
