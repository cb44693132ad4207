"""What the next session is told, where it stands, and how it is kept short."""

from __future__ import annotations

from typing import Any

import pytest

from memoree.okf import bundle, handoff
from memoree.okf.bundle import EVERYTHING
from memoree.okf.dialect import Dialect
from memoree.okf.handoff import MARKDOWN_CHARS_MAX
from memoree.okf.node import Node, parse

from .golden import BUNDLE, as_of_ms, needs_golden

AT_MS = 1_780_272_000_000


def node(node_id: str, front: str, body: str = "") -> Node:
    return parse(node_id, f"---\n{front}\n---\n{body}".encode())


def task(name: str, status: str, *more: str) -> Node:
    return node(f"projects/task-{name}", "\n".join((f"type: Task\ntitle: {name}\nstatus: {status}", *more)))


SESSION = node(
    "concepts/session-0530",
    "type: Session\ntitle: Evening\nengine: cursor\ndate: 2026-05-30\nrelations:\n  next: /projects/task-b.md",
    "\n## Done\n\n- one\n- two\n- three\n\n## Decided\n\n* cash\n\n"
    "## Next\n\n1. [ ] n1\n2. n2\n3. n3\n4. n4\n5. n5\n6. n6\n",
)
NODES = [
    task("b", "in-progress"),
    task("a", "In-Progress"),
    task("c", "blocked", "blocked_reason: no flour"),
    task("d", "done"),
    task("e", "backlog"),
    node("concepts/decision-old", "type: Decision\ntitle: Old\nagreed_on: 2026-05-01"),
    node("concepts/decision-cash", "type: Decision\ntitle: Cash\nagreed_on: 2026-05-25\ntimestamp: 2020-01-01"),
    node("concepts/decision-card", "type: Decision\ntitle: Card\ndate: 2026-05-28"),
    node("projects/plan-x", "type: Plan\ntitle: X\nstatus: agreed\nrelations:\n  covers: /projects/lumen.md"),
    node("projects/plan-y", "type: Plan\ntitle: Y\nstatus: draft"),
    node("projects/lumen", "type: Project\ntitle: Lumen"),
    node("concepts/session-0501", "type: Session\ntitle: May\ndate: 2026-05-01", "## Next\n- old\n"),
    SESSION,
]


def payload(nodes: list[Node], **how: Any) -> dict[str, Any]:
    return handoff.handoff(nodes, at_ms=AT_MS, **how).payload()


def ids(items: list[dict[str, Any]]) -> list[str]:
    return [item["id"] for item in items]


def test_it_has_the_work_the_decisions_of_the_last_days_the_plans_and_the_last_session() -> None:
    told = payload(NODES)
    sections = told["sections"]
    assert ids(sections["active"]) == ["projects/task-a", "projects/task-b", "projects/task-c"]
    assert sections["active"][2]["blockedReason"] == "no flour"
    assert [(item["id"], item["date"]) for item in sections["decisions"]] == [
        ("concepts/decision-card", "2026-05-28"),
        ("concepts/decision-cash", "2026-05-25"),
    ]
    assert ids(sections["plans"]) == ["projects/plan-x"]
    assert sections["lastSession"] == {
        "id": "concepts/session-0530",
        "path": "/concepts/session-0530.md",
        "title": "Evening",
        "date": "2026-05-30",
        "engine": "cursor",
        "done": ["one", "two"],
        "decided": ["cash"],
        "next": ["n1", "n2"],
    }
    assert ids(sections["openQuestions"]["blocked"]) == ["projects/task-c"]
    assert sections["openQuestions"]["sessionNext"] == ["n1", "n2", "n3", "n4", "n5"]
    assert (told["project"], told["days"], told["warnings"]) == (None, 14, [])
    assert set(told) == {"markdown", "project", "days", "sections", "warnings"}


def test_every_line_of_it_says_in_which_node_it_stands() -> None:
    lines = [line for line in payload(NODES)["markdown"].split("\n") if line.startswith("- ")]
    assert len(lines) == 3 + 2 + 1 + (1 + 2 + 1 + 2) + (1 + 5)
    assert all(any(f"`/{each.id}.md`" in line for each in NODES) for line in lines)


def test_an_empty_bundle_has_an_empty_one() -> None:
    told = payload([])
    assert told["sections"] == {
        "active": [],
        "decisions": [],
        "plans": [],
        "lastSession": None,
        "openQuestions": {"blocked": [], "sessionNext": []},
    }
    assert told["markdown"].count("(none)") == 5


@pytest.mark.parametrize("given", ["lumen", "projects/lumen", "/projects/lumen.md", "projects/lumen.md"])
def test_a_project_narrows_it_to_what_is_linked_with_it(given: str) -> None:
    mine = task("mine", "in-progress", "relations:\n  project: /projects/lumen.md")
    plainly = task("plainly", "in-progress", "project: projects/lumen.md")
    about = node(
        "concepts/decision-l", "type: Decision\ntitle: L\ndate: 2026-05-31\nrelations:\n  about: /projects/lumen.md"
    )
    session = node("concepts/session-l", "type: Session\ntitle: L\ndate: 2026-05-02", "[plan](/projects/plan-x.md)")
    told = payload([*NODES, mine, plainly, about, session], project=given)
    assert told["project"] == "projects/lumen"
    assert ids(told["sections"]["active"]) == ["projects/task-mine", "projects/task-plainly"]
    assert ids(told["sections"]["plans"]) == ["projects/plan-x"]
    assert ids(told["sections"]["decisions"]) == ["concepts/decision-l"]
    assert told["sections"]["lastSession"]["id"] == "concepts/session-l"


@pytest.mark.parametrize(("days", "count"), [(3, 0), (4, 1), (7, 2), (60, 3)])
def test_decisions_are_those_of_so_many_days(days: int, count: int) -> None:
    assert len(payload(NODES, days=days)["sections"]["decisions"]) == count


def test_what_is_replaced_forgotten_secret_or_raw_is_not_told() -> None:
    hidden = [
        task("v1", "in-progress", "superseded_by: /projects/task-b.md"),
        task("v2", "in-progress", "deprecated: true"),
        task("v3", "in-progress", "visibility: Secret # mine"),
        node("secret/task-v4", "type: Task\ntitle: v4\nstatus: blocked\nblocked_reason: x"),
        node("mirror/cursor/task-v5", "type: Task\ntitle: v5\nstatus: in-progress\nsupersedes: /projects/task-b.md"),
        node("inbox/task-v6", "type: Task\ntitle: v6\nstatus: in-progress"),
    ]
    assert payload([*NODES, *hidden]) == payload(NODES)


def test_a_title_of_several_lines_makes_no_line_of_its_own() -> None:
    told = payload([node("projects/t", 'type: Task\ntitle: "a\\n- [done] b"\nstatus: in-progress')])
    assert "- [in-progress] a - [done] b (`/projects/t.md`)" in told["markdown"].split("\n")


def test_over_budget_the_session_loses_what_it_did_first() -> None:
    long = [task(f"{number:03}", "in-progress") for number in range(157)]
    late = node("concepts/session-0531", "type: Session\ndate: 2026-05-31", f"## Done\n- {'x' * 230}\n- {'y' * 230}\n")
    whole = handoff.handoff([*NODES, *long, late], at_ms=AT_MS)
    told = whole.payload()
    assert len(whole._markdown()) > MARKDOWN_CHARS_MAX >= len(told["markdown"])
    assert told["warnings"] == [handoff.SESSION_SHORTENED]
    assert "Done:" not in told["markdown"]
    assert "/concepts/session-0531.md" in told["markdown"]
    assert "## Decisions" in told["markdown"]
    assert len(told["sections"]["active"]) == 160


def test_far_over_budget_only_active_work_and_open_questions_are_left_and_it_says_so() -> None:
    decisions = [node(f"concepts/d{n:03}", f"type: Decision\ntitle: D{n}\ndate: 2026-05-31") for n in range(300)]
    told = payload([*NODES, *decisions])
    assert len(told["markdown"]) <= MARKDOWN_CHARS_MAX
    assert told["warnings"] == [handoff.TRUNCATED]
    assert f"> {handoff.TRUNCATED}" in told["markdown"]
    assert [line for line in told["markdown"].split("\n") if line.startswith("## ")] == [
        "## Active",
        "## Open questions",
    ]


@pytest.mark.parametrize("count", [400, 5000])
def test_it_never_leaves_its_budget(count: int) -> None:
    told = payload([task(f"{number:04}", "blocked", f"blocked_reason: {'x' * 1000}") for number in range(count)])
    assert len(told["markdown"]) <= MARKDOWN_CHARS_MAX
    assert len(told["warnings"]) == 2
    left_out = int(told["warnings"][1].split()[2])
    assert f"{left_out} lines are left out" in told["markdown"]


@needs_golden
def test_the_golden_bundle_has_its_task_decision_plan_and_session() -> None:
    nodes = list(bundle.nodes(BUNDLE, Dialect.SERVICE, EVERYTHING))
    told = handoff.handoff(nodes, at_ms=as_of_ms(), days=365).payload()
    assert "projects/task-slots" in told["markdown"]
    assert told["sections"]["lastSession"]["id"] == "concepts/session-0530"
    assert ids(told["sections"]["decisions"]) == ["concepts/decision-cash"]
