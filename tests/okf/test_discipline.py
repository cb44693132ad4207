"""Statuses, the moves between them, and how new nodes of each type are written."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.errors import MemoreeError
from memoree.okf import discipline, frontmatter
from memoree.okf.dialect import Dialect
from memoree.okf.discipline import FORMS, STATUSES, Draft
from memoree.okf.node import parse

AT_MS = 1_780_272_000_000


def draft(title: str = "Mend the oven", **fields: object) -> Draft:
    return Draft("", title, AT_MS, **fields)  # type: ignore[arg-type]


def refusal(of: Draft) -> str:
    with pytest.raises(MemoreeError) as error:
        discipline.render(of)
    return error.value.message


@pytest.mark.proves("okf-22")
def test_each_type_has_its_own_words_and_other_types_have_none() -> None:
    assert STATUSES == {
        "plan": ("draft", "agreed", "in-progress", "done", "superseded"),
        "task": ("backlog", "in-progress", "done", "blocked"),
        "idea": ("spark", "incubating", "adopted", "rejected"),
    }


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Plan", ["draft", "agreed", "in-progress", "done", "superseded"]),
        ("Idea", ["spark", "incubating", "adopted"]),
        ("Idea", ["adopted", "rejected"]),
        ("Idea", ["spark", "rejected"]),
        ("Task", ["backlog", "in-progress", "blocked", "in-progress", "done", "backlog"]),
    ],
)
def test_a_node_goes_from_status_to_status_as_its_type_says(kind: str, path: list[str]) -> None:
    assert all(discipline.may_become(kind, now, then) for now, then in pairwise(path))


@pytest.mark.parametrize(
    ("kind", "now", "then"),
    [
        ("Plan", "draft", "done"),
        ("Plan", "superseded", "agreed"),
        ("Plan", "done", "draft"),
        ("Idea", "spark", "adopted"),
        ("Idea", "rejected", "spark"),
        ("Task", "backlog", "adopted"),
        ("Decision", "draft", "agreed"),
    ],
)
def test_other_moves_are_none(kind: str, now: str, then: str) -> None:
    assert not discipline.may_become(kind, now, then)


def test_what_is_written_in_capitals_is_the_same_status_and_what_is_no_status_may_become_any() -> None:
    assert discipline.may_become("task", "Blocked", "done")
    assert discipline.may_become("Plan", "Approved", "agreed")


@pytest.mark.proves("okf-23")
def test_a_blocked_task_needs_a_reason_and_no_other_has_one() -> None:
    discipline.check_status("Task", "blocked", "no flour")
    for status, reason in (("blocked", None), ("blocked", "  "), ("done", "no flour"), ("paused", None)):
        with pytest.raises(MemoreeError):
            discipline.check_status("Task", status, reason)


def filled(kind: str, relations: dict[str, list[str]], **fields: str | list[str]) -> Draft:
    return Draft(kind, "Mend the oven", AT_MS, fields=fields, relations=relations)


FILLED = {
    each.type: each
    for each in (
        filled("Plan", {"agreed_with": ["/entities/ines.md"], "covers": ["/projects/a.md"]}, agreed_on="2026-06-01"),
        filled("Decision", {"about": ["/projects/a.md", "/projects/b.md"]}, agreed_on="2026-06-01"),
        filled("Task", {"project": ["/projects/a.md"]}, status="blocked", blocked_reason="parts: two weeks"),
        filled("Session", {}, engine="cursor", date="2026-06-01"),
        filled("Analysis", {"informs": ["/concepts/i.md"]}, period="2026-05-01/2026-05-31"),
        filled("Research", {"spawned_by": ["/c.md"]}, source=["https://example.org/a", "/concepts/b.md"]),
        filled("Idea", {}, status="rejected", rejected_reason="too dear"),
    )
}


@pytest.mark.parametrize("kind", list(FORMS))
def test_a_new_node_has_the_fields_and_sections_of_its_type_and_both_readers_agree(kind: str) -> None:
    data = discipline.render(FILLED[kind])
    node = parse("a", data)
    assert node.native_type == kind
    assert node.native_title == "Mend the oven"
    assert node.text("timestamp") == "2026-06-01T00:00:00.000Z"
    assert [line[3:] for line in node.body.split("\n") if line.startswith("## ")] == list(FORMS[kind].sections)
    assert all(node.entries(name) for name in FORMS[kind].fields)
    relations = {key: [path for each, path in node.relations if each == key] for key, _ in node.relations}
    assert relations == FILLED[kind].relations
    assert frontmatter.read(data.decode(), Dialect.COMPAT).fields == node.fields


def test_the_first_status_is_the_first_of_the_type() -> None:
    assert parse("a", discipline.render(Draft("Plan", "Ovens", AT_MS))).text("status") == "draft"
    assert parse("a", discipline.render(Draft("Task", "Ovens", AT_MS))).text("status") == "backlog"
    assert parse("a", discipline.render(Draft("Idea", "Ovens", AT_MS))).text("status") == "spark"


@pytest.mark.proves("okf-54")
def test_supersession_is_written_in_both_spellings() -> None:
    data = discipline.render(Draft("Plan", "Ovens", AT_MS, supersedes=["projects/plan-ovens"]))
    node = parse("a", data)
    assert node.fields["supersedes"] == "/projects/plan-ovens.md"
    assert node.relations == [("supersedes", "/projects/plan-ovens.md")]
    assert node.supersedes == ["/projects/plan-ovens.md"]


def test_what_a_type_cannot_do_without_is_refused() -> None:
    assert "agreed_on" in refusal(Draft("Decision", "Ovens", AT_MS))
    assert "engine" in refusal(Draft("Session", "Ovens", AT_MS, fields={"date": "2026-06-01"}))
    assert "blocked_reason" in refusal(Draft("Task", "Ovens", AT_MS, fields={"status": "blocked"}))
    assert "rejected_reason" in refusal(Draft("Idea", "Ovens", AT_MS, fields={"status": "rejected"}))
    assert "Approved" in refusal(Draft("Plan", "Ovens", AT_MS, fields={"status": "Approved"}))
    assert "has none" in refusal(
        Draft("Decision", "Ovens", AT_MS, fields={"status": "done", "agreed_on": "2026-06-01"})
    )
    assert "title" in refusal(Draft("Task", "  ", AT_MS))
    assert "type" in refusal(Draft("Cake", "Ovens", AT_MS))


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn", "Zl", "Zp"], exclude_characters="\ufeff"), min_size=1)
)
def test_any_title_of_one_line_is_written_so_that_it_reads_back(title: str) -> None:
    title = title.strip()
    if title:
        assert parse("a", discipline.render(Draft("Task", title, AT_MS))).native_title == title


def test_a_path_comes_from_the_type_and_the_title() -> None:
    assert discipline.path_for(Draft("Task", "Mend the oven!", AT_MS)) == "projects/task-mend-the-oven.md"
    assert discipline.path_for(Draft("Idea", "Ржаной хлеб", AT_MS)) == "concepts/idea-ржаной-хлеб.md"
    assert discipline.path_for(Draft("Session", "../..", AT_MS)) == "concepts/session-2026-06-01.md"
