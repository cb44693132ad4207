"""Which nodes want a decision, and plans that are judged whole before anything is done."""

from __future__ import annotations

from typing import Any

import pytest

from memoree.errors import MemoreeError
from memoree.okf import bundle, dates, review
from memoree.okf.dialect import Dialect
from memoree.okf.hygiene import Activity
from memoree.okf.node import Node, parse
from memoree.okf.review import Candidate, Line

from .golden import BUNDLE, activity, as_of_ms, expected, needs_golden, vectors

AT_MS = 1_780_272_000_000
OLD_MS = AT_MS - 61 * dates.DAY_MS


def node(node_id: str, front: str = "type: Concept", body: str = "") -> Node:
    return parse(node_id, f"---\n{front}\n---\n{body}".encode())


def linked(*nodes: Node) -> list[Node]:
    """With an index that links all of them, so that none is an orphan."""
    links = "".join(f"[{each.id}](/{each.id}.md)\n" for each in nodes)
    return [*nodes, parse("index", links.encode())]


def found(nodes: list[Node], *, modified_ms: int = OLD_MS, **how: Any) -> dict[str, Candidate]:
    modified = {each.id: modified_ms for each in nodes}
    how = {"activity": {}, "at_ms": AT_MS} | how
    return {each.id: each for each in review.candidates(nodes, modified_ms=modified, **how)}


def reasons(nodes: list[Node], **how: Any) -> dict[str, list[str]]:
    return {node_id: list(each.reasons) for node_id, each in found(nodes, **how).items()}


def refusal(text: str) -> str:
    with pytest.raises(MemoreeError) as error:
        review.parse_plan(text)
    assert error.value.code == "INVALID_REQUEST"
    return error.value.message


# --- the report -------------------------------------------------------------------------------------------------------


def test_what_nobody_touched_for_so_many_days_is_stale_and_the_later_touch_counts() -> None:
    nodes = linked(node("a/old"), node("a/stated", "type: Concept\ntimestamp: 2026-05-01"))
    assert reasons(nodes) == {"a/old": ["stale"]}
    assert reasons(nodes, modified_ms=AT_MS - dates.DAY_MS) == {}
    assert reasons(nodes, stale_days=61) == {}
    assert reasons(nodes, stale_days=30) == {"a/old": ["stale"], "a/stated": ["stale"]}


def test_what_is_worked_on_is_not_stale_unless_it_is_old_too() -> None:
    nodes = linked(node("a/new"), node("a/old", "type: Concept\ntimestamp: 2024-01-01"))
    warm = Activity(3, AT_MS - dates.DAY_MS)
    assert reasons(nodes, activity={"a/new": warm, "a/old": warm}) == {"a/old": ["stale"]}


def test_what_is_timeless_forgotten_replaced_or_archived_is_not_stale() -> None:
    nodes = linked(
        node("a/me", "type: User"),
        node("a/gone", "type: Concept\ndeprecated: true"),
        node("a/v1"),
        node("a/v2", "type: User\nsupersedes: /a/v1.md"),
        node("archive/a/x", "type: Concept\ndeprecated: true"),
    )
    assert reasons(nodes) == {"a/gone": ["deprecated"], "a/v1": ["superseded"]}
    assert {each.suggestion for each in found(nodes).values()} == {"archive"}


def test_a_pointer_to_nothing_replaces_nothing() -> None:
    nodes = linked(
        node("a/x", "type: User\nsuperseded_by: /a/none.md"), node("a/y", "type: User\nsuperseded_by: /a/x.md")
    )
    assert reasons(nodes) == {"a/y": ["superseded"]}


def test_reasons_of_one_node_are_one_row_and_the_first_of_the_order_is_suggested() -> None:
    nodes = [node("a/1", "type: Plan\ntitle: North van route"), node("a/2", "type: Plan\ntitle: South van route")]
    rows = found(nodes)
    assert {node_id: each.reasons for node_id, each in rows.items()} == {
        "a/1": ["stale", "conflict", "orphan"],
        "a/2": ["stale", "conflict", "orphan"],
    }
    assert rows["a/2"].to_json() == {
        "id": "a/2",
        "type": "Plan",
        "title": "South van route",
        "reasons": ["stale", "conflict", "orphan"],
        "suggestion": "merge",
        "conflictsWith": ["a/1"],
        "target": "a/1",
    }


def test_the_suggestions_are_a_plan_that_can_be_applied() -> None:
    nodes = [node("a/1", "type: Plan\ntitle: North van route"), node("a/2", "type: Plan\ntitle: South van route")]
    lines = "\n".join(each.plan_line() for each in found(nodes).values())
    assert lines == "a/1\tkeep\na/2\tmerge\ta/1"
    assert len(review.steps(review.parse_plan(lines), {each.id: each for each in nodes})) == 2


@pytest.mark.parametrize("loser", ["authority: derived", "timestamp: 2026-04-30", "valid_from: 2026-04-01"])
def test_of_two_in_conflict_the_one_to_believe_is_the_target(loser: str) -> None:
    believed = "authority: canon\ntimestamp: 2026-05-01\ntitle: North van route\ntype: Plan"
    nodes = [node("a/1", f"{believed}\n{loser}"), node("a/2", believed)]
    rows = found(nodes)
    assert (rows["a/1"].target, rows["a/2"].target) == ("a/2", None)


@needs_golden
def test_the_orphans_of_the_golden_bundle_are_those_of_the_reference_program() -> None:
    nodes = list(bundle.nodes(BUNDLE, Dialect.COMPAT))
    topics = {each.id: activity(each.id) for each in nodes}
    rows = review.candidates(
        nodes,
        modified_ms={},
        activity={topic: known for topic, known in topics.items() if known is not None},
        at_ms=as_of_ms(),
    )
    assert [each.id for each in rows if "orphan" in each.reasons] == expected()["links"]["orphans"]
    assert [each.id for each in rows if "conflict" in each.reasons] == ["concepts/route-north", "concepts/route-south"]
    assert [each.id for each in rows] == sorted(each.id for each in rows)


# --- the plan ---------------------------------------------------------------------------------------------------------


@needs_golden
@pytest.mark.proves("okf-93")
def test_plans_are_read_and_refused_as_the_reference_program_does() -> None:
    for vector in vectors("reviewPlan"):
        if "error" in vector:
            assert refusal(vector["in"]) == vector["error"]
        else:
            told = [
                {"id": line.id, "action": line.action, "target": line.target}
                for line in review.parse_plan(vector["in"])
            ]
            assert told == vector["ok"]


@pytest.mark.proves("okf-93")
def test_a_bad_line_refuses_the_whole_plan_and_names_itself() -> None:
    assert refusal("a keep\nb frob\nc") == 'unknown action "frob" for b'
    assert refusal("a keep b") == "invalid plan line: a keep b"
    assert refusal("a merge b c") == "invalid plan line: a merge b c"
    assert refusal("x" * 500).endswith("…")


def test_names_with_spaces_want_tabs() -> None:
    assert review.parse_plan("\ufeffmy plan\tarchive\r\nour oven\tmerge\tthe oven\n") == [
        Line("my plan", "archive"),
        Line("our oven", "merge", "the oven"),
    ]


@pytest.mark.parametrize("plan", ["a keep\n" * 201, "#" * 300_000])
def test_an_endless_plan_is_refused(plan: str) -> None:
    assert "a plan has at most" in refusal(plan)


BY_ID = {
    each.id: each
    for each in (
        node("a/oven"),
        node("b/oven"),
        node("b/rye", "type: Concept\ndeprecated: true"),
        node("b/merged", "type: Concept\nsuperseded_by: /a/oven.md"),
        node("b/yeast"),
        node("archive/b/yeast"),
        node("archive/b/gone"),
        node("c/pay", "type: Concept\nvisibility: secret"),
        node("index"),
    )
}


def outcomes(plan: str) -> list[tuple[str, str]]:
    return [(step.node_id, step.to_json()["result"]) for step in review.steps(review.parse_plan(plan), BY_ID)]


@pytest.mark.proves("okf-93")
def test_what_is_done_already_is_skipped_and_says_so() -> None:
    assert outcomes("b/rye forget\nb/gone archive\nb/merged merge a/oven\nb/oven keep\na/oven keep") == [
        ("b/rye", "skip: already deprecated"),
        ("b/gone", "skip: already archived"),
        ("b/merged", "skip: already merged"),
        ("b/oven", "kept"),
        ("a/oven", "kept"),
    ]
    assert outcomes("/b/oven.md forget\nrye archive\nyeast merge a/oven") == [
        ("b/oven", "applied"),
        ("b/rye", "applied"),
        ("b/yeast", "applied"),
    ]


@pytest.mark.proves("okf-92", "okf-93")
@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ("oven forget", "may be /a/oven.md, /b/oven.md"),
        ("none forget", "no such node"),
        ("archive/b/gone forget", "no such node"),
        ("gone forget", "no such node"),
        ("index archive", "no such node"),
        ("../../etc/passwd archive", "inside the bundle"),
        ("b/yeast archive", "exists already"),
        ("b/rye merge none", "no such node"),
        ("b/rye merge rye", "into itself"),
        ("b/rye merge c/pay", "must not be named"),
        ("b/rye keep\nrye forget", "decides twice about /b/rye.md"),
        ("b/rye merge a/oven\na/oven archive", "which the plan says to archive"),
    ],
)
def test_a_line_that_cannot_be_done_refuses_the_plan(plan: str, why: str) -> None:
    with pytest.raises(MemoreeError, match=why):
        outcomes(f"b/merged forget\n{plan}")
