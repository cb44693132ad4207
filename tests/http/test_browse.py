"""Lists without a query, over the real server: filters, cursors, conditional requests, and who sees what."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from http_support import CONTEXT, Caller, Json, serving, write_tokens
from list_support import ask, assert_claim, get, page, put, put_many, refused, relate, statements, titles

from memoree.assembly import embedded_service
from memoree.embedded import LOCAL_TENANT, EmbeddedService
from memoree.http.app import create_app
from memoree.http.settings import HttpSettings


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 2, 20, 41, 7, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock, stack: ExitStack) -> EmbeddedService:
    service = embedded_service(tmp_path / "store", clock=clock)
    stack.callback(service.close_sync)
    return service


# --- what comes -------------------------------------------------------------------------------------------------


@pytest.mark.proves("fault-60")
def test_lists_show_the_records_that_the_operations_show(caller: Caller) -> None:
    artifact, claim = put(caller, "Kiln firing 12"), assert_claim(caller, "It reached cone 6.")
    relation = relate(caller, artifact, "supports", claim)
    artifact = ask(caller, "artifact.revise", _revision(artifact))
    for path, op, input in (
        ("artifacts", "artifact.get", {"artifact_id": artifact["artifact_id"], "include_content": False}),
        ("claims", "claim.get", {"claim_id": claim["claim_id"]}),
    ):
        assert page(caller, path)["items"] == [ask(caller, op, input)]
    anchor = {"entity_type": "claim", "entity_id": claim["claim_id"]}
    assert page(caller, "relations")["items"] == ask(caller, "relation.list", anchor)["relations"]
    assert page(caller, "relations")["items"][0]["relation_id"] == relation["relation_id"]


def _revision(artifact: Json) -> Json:
    content = {"type": "text", "data": "cone 5 after all"}
    return {"artifact_id": artifact["artifact_id"], "if_revision": artifact["revision_id"], "content": content}


def test_the_newest_row_comes_first_and_a_revision_moves_nothing(caller: Caller) -> None:
    first = put(caller, "first")
    put(caller, "second")
    ask(caller, "artifact.revise", _revision(first))
    assert titles(page(caller, "artifacts")) == ["second", "first"]


def test_an_empty_list_is_a_page_without_items(caller: Caller) -> None:
    for path in ("artifacts", "claims", "relations"):
        assert page(caller, path) == {"items": [], "next_cursor": None, "commit_seq": 0}


# --- filters ----------------------------------------------------------------------------------------------------


def test_artifacts_are_filtered_by_kind_and_status(caller: Caller) -> None:
    put(caller, "a log", kind="log")
    gone = put(caller, "a forgotten log", kind="log")
    put(caller, "a note", kind="note")
    ask(caller, "artifact.forget", {"artifact_id": gone["artifact_id"], "reason": "wrong kiln"})
    assert titles(page(caller, "artifacts")) == ["a note", "a log"]
    assert titles(page(caller, "artifacts", kind="log")) == ["a log"]
    assert titles(page(caller, "artifacts", status="any")) == ["a note", "a forgotten log", "a log"]
    assert titles(page(caller, "artifacts", status="forgotten", kind="log")) == ["a forgotten log"]
    assert titles(page(caller, "artifacts", status="forgotten", kind="note")) == []


def test_claims_are_filtered_by_type_and_status(caller: Caller) -> None:
    names = ("kept", "retracted", "older", "newer", "disputed", "disputing")
    made = {name: assert_claim(caller, name, claim_type="observation") for name in names}
    assert_claim(caller, "a fact", claim_type="fact")
    ask(caller, "claim.retract", {"claim_id": made["retracted"]["claim_id"], "reason": "the thermocouple was broken"})
    relate(caller, made["newer"], "supersedes", made["older"])
    relate(caller, made["disputing"], "contradicts", made["disputed"])
    for status, expected in (
        (None, ["disputing", "disputed", "newer", "kept"]),
        ("current", ["disputing", "disputed", "newer", "kept"]),
        ("active", ["newer", "kept"]),
        ("conflicted", ["disputing", "disputed"]),
        ("superseded", ["older"]),
        ("retracted", ["retracted"]),
        ("any", ["disputing", "disputed", "newer", "older", "retracted", "kept"]),
    ):
        assert statements(page(caller, "claims", type="observation", status=status)) == expected
    assert statements(page(caller, "claims", type="fact")) == ["a fact"]


def test_relations_are_filtered_by_their_type(caller: Caller) -> None:
    one, two = assert_claim(caller, "one"), assert_claim(caller, "two")
    relate(caller, one, "supports", two), relate(caller, two, "references", one)
    kinds = ("supports", "references", "duplicates")
    found = {kind: page(caller, "relations", relation=kind)["items"] for kind in kinds}
    assert [item["source_id"] for item in found["supports"]] == [one["claim_id"]]
    assert [item["source_id"] for item in found["references"]] == [two["claim_id"]]
    assert found["duplicates"] == []


def test_a_source_leads_to_its_artifacts_the_claims_citing_them_and_their_relations(caller: Caller) -> None:
    wiki, mail = (ask(caller, "source.register", {"name": name, "kind": "adapter"}) for name in ("wiki", "mail"))
    delivered = {
        source["source_id"]: ask(caller, "source.ingest", _item(source, name))["artifact"]
        for source, name in ((wiki, "glazes"), (mail, "offer"))
    }
    page_of_wiki, letter = delivered.values()
    own = put(caller, "a note of one's own")
    cites = {"artifact_id": page_of_wiki["artifact_id"], "revision_id": page_of_wiki["revision_id"]}
    citing = assert_claim(caller, "Celadon has 2 % iron.", evidence=[cites])
    loose = assert_claim(caller, "The offer is too high.")
    relate(caller, page_of_wiki, "supports", citing)
    relate(caller, letter, "references", loose)
    relate(caller, own, "references", loose)
    of_wiki = {"source": wiki["source_id"]}
    assert titles(page(caller, "artifacts", **of_wiki)) == ["glazes"]
    assert statements(page(caller, "claims", **of_wiki)) == ["Celadon has 2 % iron."]
    assert [edge["target_id"] for edge in page(caller, "relations", **of_wiki)["items"]] == [citing["claim_id"]]
    assert page(caller, "artifacts", source="src_unknown")["items"] == []
    withdrawal = {"source_id": wiki["source_id"], "external_id": "glazes", "reason": "deleted"}
    ask(caller, "source.withdraw", withdrawal)
    for listing in ("artifacts", "claims", "relations"):
        assert page(caller, listing, **of_wiki)["items"] == [], "a source that withdrew an item delivers it no more"
        status = {} if listing == "relations" else {"status": "any"}
        assert page(caller, listing, **of_wiki, **status)["items"] == []
    assert titles(page(caller, "artifacts", source=mail["source_id"])) == ["offer"]


def _item(source: Json, name: str) -> Json:
    content = {"type": "text", "data": f"about {name}"}
    item = {"external_id": name, "external_revision": "1", "kind": "page", "title": name, "content": content}
    return item | {"source_id": source["source_id"]}


@pytest.mark.proves("fault-23")
@pytest.mark.parametrize("value", ['{"$ne": ""}', "[]", "null", "%", "_", "*", "' OR 1=1--", "\0", "LOG", "log\0"])
def test_a_filter_value_is_plain_text_or_refused(caller: Caller, value: str) -> None:
    artifact = put(caller, "a log", kind="log")
    claim = assert_claim(caller, "It reached cone 6.")
    relate(caller, artifact, "supports", claim)
    for path, name in (
        ("artifacts", "kind"),
        ("artifacts", "source"),
        ("claims", "source"),
        ("relations", "source"),
        *((path, name) for path in ("artifacts", "claims", "relations") for name in ("workspace_id", "project_id")),
    ):
        assert page(caller, path, **{name: value})["items"] == [], f"{name} widens {path}"
    for path, name in (
        ("artifacts", "status"),
        ("claims", "status"),
        ("claims", "type"),
        ("relations", "relation"),
        ("artifacts", "horizon"),
    ):
        refused(get(caller, path, **{name: value}), 400, "INVALID_REQUEST")


@pytest.mark.proves("fault-36")
def test_an_old_match_is_found_behind_a_thousand_newer_rows(caller: Caller, clock: Clock) -> None:
    put(caller, "the old log", kind="log", context={"workspace_id": "wsp_lab", "project_id": "prj_old"})
    clock.now = datetime(2026, 4, 1, tzinfo=UTC)
    put_many(caller, 1000)
    for wanted in (
        {"kind": "log"},
        {"created_until": "2026-03-15T00:00:00Z"},
        {"kind": "log", "created_from": "2026-03-01T00:00:00Z", "created_until": "2026-03-15T00:00:00Z"},
    ):
        found = page(caller, "artifacts", horizon="workspace", reason="the old log", limit=1, **wanted)
        assert (titles(found), found["next_cursor"]) == (["the old log"], None)
    assert titles(page(caller, "artifacts", project_id="prj_old", limit=1)) == ["the old log"]


@pytest.mark.proves("fault-38")
def test_a_day_is_what_its_zone_says_and_its_end_is_not_in_it(caller: Caller, clock: Clock) -> None:
    clock.now = datetime.fromisoformat("2025-06-18T23:30:00-07:00")
    put(caller, "late firing")
    for zone, day, there in (
        ("-07:00", 18, True),
        ("-07:00", 19, False),
        ("Z", 18, False),
        ("Z", 19, True),
        ("+09:00", 18, False),
        ("+09:00", 19, True),
    ):
        window = {"created_from": f"2025-06-{day}T00:00:00{zone}", "created_until": f"2025-06-{day + 1}T00:00:00{zone}"}
        assert bool(page(caller, "artifacts", **window)["items"]) is there, window


@pytest.mark.proves("fault-38")
def test_an_interval_holds_its_first_instant_and_not_its_last(caller: Caller, clock: Clock) -> None:
    put(caller, "on the dot"), assert_claim(caller, "on the dot")
    at, later = "2026-03-02T20:41:07Z", "2026-03-02T20:41:07.000000001Z"
    for path in ("artifacts", "claims"):
        assert len(page(caller, path, created_from=at, created_until=later)["items"]) == 1
        assert page(caller, path, created_until=at)["items"] == []
        assert page(caller, path, created_from=later)["items"] == []


@pytest.mark.proves("fault-38")
@pytest.mark.parametrize("text", ["2026-03-02", "2026-03-02T20:41:07", "20260302", "yesterday", "1772484067"])
def test_an_instant_without_a_zone_is_refused(caller: Caller, text: str) -> None:
    for name in ("created_from", "created_until"):
        assert name in refused(get(caller, "artifacts", **{name: text}), 400, "INVALID_REQUEST")


def test_a_refused_parameter_is_told_what_to_write(caller: Caller) -> None:
    query = "workspace=wsp_lab&project_id=prj_kiln"
    message = refused(caller.http.get(f"/v1/artifacts?{query}"), 400, "INVALID_REQUEST")
    assert "'workspace' is no parameter" in message and "workspace_id, project_id" in message
    query = "workspace_id=wsp_lab&project_id=prj_kiln&created_from=2026-03-02T20:41:07+09:00"
    assert "%2B" in refused(caller.http.get(f"/v1/artifacts?{query}"), 400, "INVALID_REQUEST")


def test_an_interval_that_ends_before_it_begins_is_refused(caller: Caller) -> None:
    at = "2026-03-02T20:41:07Z"
    refused(get(caller, "artifacts", created_from=at, created_until=at), 400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "query",
    [
        "kin=note",
        "kind=",
        "kind",
        "kind=note&kind=log",
        "limit=0",
        "limit=-1",
        "limit=ten",
        "limit=1.5",
        "limit=99999999999999999999",
        "limit=%D9%A3",
        "min_commit_seq=-1",
        "kind=%ff",
        "status=Active",
        "workspace_id=",
        "&".join(f"x{number}=1" for number in range(40)),
    ],
)
def test_a_parameter_that_cannot_be_meant_is_refused(caller: Caller, query: str) -> None:
    response = caller.http.get(f"/v1/artifacts?workspace_id=wsp_lab&project_id=prj_kiln&{query}")
    refused(response, 400, "INVALID_REQUEST")


# --- scope ------------------------------------------------------------------------------------------------------


def test_the_horizon_says_how_far_a_list_looks(caller: Caller) -> None:
    for workspace_id, project_id in (("wsp_lab", "prj_kiln"), ("wsp_lab", "prj_wheel"), ("wsp_home", "prj_kiln")):
        put(caller, f"{workspace_id}/{project_id}", context={"workspace_id": workspace_id, "project_id": project_id})
    for horizon, seen in (
        ("ambient", ["wsp_lab/prj_kiln"]),
        ("workspace", ["wsp_lab/prj_wheel", "wsp_lab/prj_kiln"]),
        ("personal", ["wsp_home/prj_kiln", "wsp_lab/prj_wheel", "wsp_lab/prj_kiln"]),
    ):
        assert titles(page(caller, "artifacts", horizon=horizon, reason="compare")) == seen


@pytest.mark.parametrize("horizon", ["workspace", "personal"])
@pytest.mark.parametrize("reason", [None, " ", "\t\n"])
def test_a_wider_horizon_needs_a_reason(caller: Caller, horizon: str, reason: str | None) -> None:
    assert "reason" in refused(get(caller, "claims", horizon=horizon, reason=reason), 400, "INVALID_REQUEST")


def test_a_task_sees_its_own_rows_and_those_of_no_task(caller: Caller) -> None:
    for task_id in (None, "tsk_1", "tsk_2"):
        put(caller, task_id or "none", context=CONTEXT | ({"task_id": task_id} if task_id else {}))
    assert titles(page(caller, "artifacts")) == ["tsk_2", "tsk_1", "none"]
    assert titles(page(caller, "artifacts", task_id="tsk_1")) == ["tsk_1", "none"]


@pytest.mark.proves("fault-26")
def test_scopes_are_compared_whole_and_byte_for_byte(caller: Caller) -> None:
    names = ["test_user", "test_user1", "a", "a1", "a_", "A", "a%", "\u00e1", "a\u0301"]
    for name in names:
        put(caller, name, context={"workspace_id": name, "project_id": "prj"})
        put(caller, name, context={"workspace_id": "wsp", "project_id": name})
    for name in names:
        assert titles(page(caller, "artifacts", workspace_id=name, project_id="prj")) == [name]
        assert titles(page(caller, "artifacts", workspace_id="wsp", project_id=name)) == [name]
        wide = page(caller, "artifacts", workspace_id=name, project_id="x", horizon="workspace", reason="all of it")
        assert titles(wide) == [name]


def test_without_any_context_there_is_no_list(caller: Caller) -> None:
    nowhere = {"workspace_id": None, "project_id": None}
    refused(get(caller, "artifacts", **nowhere), 400, "NO_AMBIENT_CONTEXT")
    refused(get(caller, "artifacts", **nowhere, horizon="personal", reason="all"), 400, "NO_AMBIENT_CONTEXT")
    refused(get(caller, "artifacts", **nowhere, horizon="all"), 400, "INVALID_REQUEST")


@pytest.mark.parametrize("missing", ["workspace_id", "project_id"])
def test_half_a_context_is_refused(caller: Caller, missing: str) -> None:
    assert missing in refused(get(caller, "artifacts", **{missing: None}), 400, "INVALID_REQUEST")


@pytest.fixture
def token_caller(store: EmbeddedService, tmp_path: Path, stack: ExitStack) -> Callable[[str], Caller]:
    """Callers of the local store: one with a context of its own, one without, one that may not read."""
    everything = ["recall", "ingest"]
    entries = {
        "tok-home": {"tenant": LOCAL_TENANT, "scopes": everything, "context": CONTEXT},
        "tok-nowhere": {"tenant": LOCAL_TENANT, "scopes": everything},
        "tok-blind": {"tenant": LOCAL_TENANT, "scopes": ["ingest"], "context": CONTEXT},
    }
    settings = HttpSettings(tokens_file=write_tokens(tmp_path / "tokens.json", entries), only_tenant=LOCAL_TENANT)
    base_url = stack.enter_context(serving(create_app(store, settings)))

    def caller_of(token: str) -> Caller:
        made = Caller(base_url, token)
        stack.callback(made.close)
        return made

    return caller_of


def test_a_token_with_a_context_of_its_own_needs_no_other(token_caller: Callable[[str], Caller]) -> None:
    nowhere = {"workspace_id": None, "project_id": None}
    put(token_caller("tok-home"), "at home")
    put(token_caller("tok-home"), "elsewhere", context=CONTEXT | {"project_id": "prj_other"})
    assert titles(page(token_caller("tok-home"), "artifacts", **nowhere)) == ["at home"]
    assert titles(page(token_caller("tok-home"), "artifacts", project_id="prj_other")) == ["elsewhere"]
    refused(get(token_caller("tok-nowhere"), "artifacts", **nowhere), 400, "NO_AMBIENT_CONTEXT")


def test_a_list_needs_a_token_that_may_read(token_caller: Callable[[str], Caller]) -> None:
    for path in ("artifacts", "claims", "relations"):
        refused(get(token_caller("tok-blind"), path), 403, "FORBIDDEN")
        refused(get(token_caller("tok-wrong"), path), 401, "UNAUTHENTICATED")


# --- conditional and consistent reads ---------------------------------------------------------------------------


def test_who_has_the_page_is_not_sent_it_again(caller: Caller) -> None:
    put(caller, "first")
    fresh = get(caller, "artifacts")
    tag = fresh.headers["etag"]
    assert tag.startswith('"')
    for named in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        again = get(caller, "artifacts", headers={"If-None-Match": named})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert again.headers["memoree-commit-seq"] == "1"
    assert get(caller, "artifacts", headers={"If-None-Match": '"other"'}).status_code == 200
    put(caller, "second")
    changed = get(caller, "artifacts", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


def test_a_page_may_be_kept_only_by_who_was_sent_it(caller: Caller) -> None:
    answer = get(caller, "artifacts")
    assert answer.headers.get_list("cache-control") == ["private, no-cache"]
    assert "authorization" in answer.headers["vary"].lower()


def test_a_state_that_is_not_there_yet_is_refused_and_not_passed_over(caller: Caller) -> None:
    put(caller, "first")
    assert titles(page(caller, "artifacts", min_commit_seq=1)) == ["first"]
    response = get(caller, "artifacts", min_commit_seq=2)
    refused(response, 503, "INDEX_NOT_READY")
    assert int(response.headers["retry-after"]) >= 1


def test_consistency_is_strong_or_not_named(caller: Caller) -> None:
    assert get(caller, "artifacts", headers={"Memoree-Consistency": "strong"}).status_code == 200
    refused(get(caller, "artifacts", headers={"Memoree-Consistency": "weak"}), 400, "INVALID_REQUEST")
