"""Claims of what canon states: made by a step of their own, cited to the byte, valid as long as their nodes are."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memoree import clock
from memoree.bundles.compiling import apply, preview
from memoree.client.batches import Command, Outcome
from memoree.errors import MemoreeError
from memoree.okf.node import parse
from memoree.okf.statements import STATEMENTS_MAX, Statement, statements
from operations.bench import Bench, Json

from .bundle_support import node
from .golden import BUNDLE, needs_golden
from .inbox_support import issues

DECISION = node("Why.", "Decision", title="Ovens", description="Bake at night.")


class BenchDoor:
    """A store to tell commands to, as the program does."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def ask(self, op: str, input: Any) -> Json:
        return self._bench.read(op, input)

    def tell(self, commands: Sequence[Command]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for command in commands:
            try:
                outcomes.append(self._bench.write(command.op, command.input, key=command.key))
            except MemoreeError as refused:
                outcomes.append(refused)
        return outcomes


class Canon:
    """A bundle in a store, its files delivered and withdrawn one by one."""

    def __init__(self, directory: Path) -> None:
        self.bench = Bench(directory)
        self.door = BenchDoor(self.bench)
        self.source = self.bench.write("source.register", {"name": "okf:b", "kind": "okf"})["source_id"]

    def deliver(self, path: str, data: str | bytes) -> Json:
        content = data.encode() if isinstance(data, str) else data
        given = {
            "source_id": self.source,
            "external_id": path,
            "external_revision": hashlib.sha256(content).hexdigest(),
            "kind": "okf.node",
            "title": path,
            "content": {"type": "text", "data": content.decode()},
        }
        return self.bench.write("source.ingest", given)

    def withdraw(self, path: str) -> None:
        given = {"source_id": self.source, "external_id": path, "reason": "deleted"}
        self.bench.write("source.withdraw", given)

    def actions(self, *types: str) -> list[tuple[str, str]]:
        """(what, statement or reason) of the preview."""
        told = preview(self.door, types).actions
        return [(each["action"], each["input"].get("statement") or each["input"].get("reason", "")) for each in told]

    def claims(self) -> list[Json]:
        ids = self.bench.db.execute("SELECT claim_id FROM claims ORDER BY row_id").fetchall()
        return [self.bench.read("claim.get", {"claim_id": claim_id}) for (claim_id,) in ids]

    def statements(self) -> list[tuple[str, str]]:
        return [(each["status"], each["statement"]) for each in self.claims()]


@pytest.fixture
def canon(tmp_path: Path) -> Iterator[Canon]:
    canon = Canon(tmp_path)
    with contextlib.closing(canon.bench):
        yield canon


# --- statements -------------------------------------------------------------------------------------------------------


def told(path: str, data: str | bytes, *also: str) -> list[Statement]:
    content = data.encode() if isinstance(data, str) else data
    return statements(parse(path, content), content, frozenset(also))


def quotes(data: str | bytes, found: Sequence[Statement]) -> list[list[str]]:
    content = data.encode() if isinstance(data, str) else data
    return [[content[start:end].decode() for start, end in each.spans] for each in found]


@pytest.mark.proves("okf-110")
@pytest.mark.parametrize(
    ("data", "expected", "lines"),
    [
        (DECISION, [("decision", "Bake at night.")], [["description: Bake at night."]]),
        (node("x", "Decision", title="Ovens"), [("decision", "Ovens")], [["title: Ovens"]]),
        (
            node("# Rules\n\n- Say less.\n- Ask\n  first.\n\nProse.\n\n## More\n1. Count.", "EngineRule"),
            [("procedure", "Say less."), ("procedure", "Ask first."), ("procedure", "Count.")],
            [["- Say less."], ["- Ask\n  first."], ["1. Count."]],
        ),
        (
            node(
                "# Me\n\n- Not this.\n\n## Boundaries\n\n* No money.\n\n### Hard\n* No names.\n\n## Voice\n* Warm.",
                "Identity",
            ),
            [("constraint", "No money."), ("constraint", "No names.")],
            [["* No money."], ["* No names."]],
        ),
        (
            node("# Ann\n\nA baker.\n\n- Never call before noon.\n\n## Other\n- Likes rye.", "User"),
            [("preference", "Never call before noon.")],
            [["- Never call before noon."]],
        ),
        (
            node("## Question\n\nWhy?\n\n## Verdict\n\nRye sours\nwell.\n\nMore.", "Research"),
            [("observation", "Rye sours well.")],
            [["Rye sours\nwell."]],
        ),
        (
            node("## Pattern\n\n- Mondays are slow.\n- Fridays are not.", "Analysis", description="Sales"),
            [("observation", "Mondays are slow.")],
            [["- Mondays are slow."]],
        ),
        (
            node("x", "Analysis", description="Sales fall."),
            [("observation", "Sales fall.")],
            [["description: Sales fall."]],
        ),
        (
            node("x", "Task", title="Fix it", status="blocked", blocked_reason="no flour"),
            [("observation", "Task Fix it is blocked: no flour")],
            [["status: blocked", "blocked_reason: no flour"]],
        ),
        (
            node("x", "Plan", status="agreed", blocked_reason="old"),
            [("observation", "Plan /a/b.md is agreed")],
            [["status: agreed"]],
        ),
    ],
)
def test_a_node_states_what_its_type_says_and_the_bytes_are_the_lines(
    data: str, expected: list[tuple[str, str]], lines: list[list[str]]
) -> None:
    found = told("a/b", data)
    assert [(each.claim_type, each.text) for each in found] == expected
    assert quotes(data, found) == lines


@pytest.mark.proves("okf-110")
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_spans_count_bytes_whatever_the_file_is_written_like(ending: str, mark: str) -> None:
    text = mark + node("## Verdict\n\nÜber die Öfen.\n", "Research", title="Käse").replace("\n", ending)
    (found,) = told("a/b", text)
    assert (found.text, quotes(text, [found])) == ("Über die Öfen.", [["Über die Öfen."]])


@pytest.mark.parametrize(
    "data",
    [
        node("- A bullet.", "Concept", description="A fact."),
        node("```\n- In code.\n```\n", "EngineRule"),
        node("x", "Decision"),
        node("x", "Task", title="No status"),
        node("x", "Research", description="No verdict"),
        "- no front matter",
    ],
)
def test_what_states_nothing_has_no_statement(data: str) -> None:
    assert told("a/b", data) == []


def test_descriptions_of_other_types_are_facts_only_where_asked_for() -> None:
    data = node("x", "Concept", description="Rye is a grass.")
    assert [(each.claim_type, each.text) for each in told("a/b", data, "concept")] == [("fact", "Rye is a grass.")]
    assert told("a/b", data, "entity") == []


def test_a_node_of_very_many_bullets_has_a_bounded_number_of_statements() -> None:
    assert len(told("a/b", node("- Rule.\n" * (STATEMENTS_MAX + 9), "EngineRule"))) == STATEMENTS_MAX


# --- the step ---------------------------------------------------------------------------------------------------------


@pytest.mark.proves("okf-110")
def test_ingestion_alone_makes_no_claim_and_neither_does_the_preview(canon: Canon) -> None:
    canon.deliver("concepts/ovens.md", DECISION)
    assert canon.actions() == [("assert", "Bake at night.")]
    assert canon.claims() == []


@pytest.mark.proves("okf-110")
def test_an_applied_claim_cites_exactly_the_line(canon: Canon) -> None:
    canon.deliver("concepts/ovens.md", DECISION)
    (action,) = preview(canon.door).actions
    assert action["quotes"] == ["description: Bake at night."]
    assert apply(canon.door).counts == {"assert": 1}
    (claim,) = canon.claims()
    assert (claim["claim_type"], claim["statement"], claim["status"]) == ("decision", "Bake at night.", "active")
    (evidence,) = claim["evidence"]
    cited = f"memoree://artifact/{evidence['artifact_id']}@{evidence['revision_id']}"
    span = f"#{evidence['start_byte']}-{evidence['end_byte']}"
    assert canon.bench.read("citation.get", {"citation": cited + span})["content"] == "description: Bake at night."
    assert issues(canon.bench) == []


@needs_golden
@pytest.mark.proves("okf-110")
def test_every_quote_of_the_golden_bundle_is_what_its_span_cites(canon: Canon) -> None:
    for file in sorted(BUNDLE.rglob("*.md")):
        with contextlib.suppress(MemoreeError):  # secrets and raw inbox files
            canon.deliver(file.relative_to(BUNDLE).as_posix(), file.read_bytes())
    before = preview(canon.door, ("Concept", "Entity"))
    assert before.counts["assert"] > 10
    for action in before.actions:
        data = (BUNDLE / action["path"].lstrip("/")).read_bytes()
        spans = [(each["start_byte"], each["end_byte"]) for each in action["input"]["evidence"]]
        assert [data[start:end].decode() for start, end in spans] == action["quotes"]
    done = apply(canon.door, ("Concept", "Entity"))
    assert done.refused == {}
    assert done.counts["assert"] == before.counts["assert"]
    assert preview(canon.door, ("Concept", "Entity")).actions == []
    assert issues(canon.bench) == []


@pytest.mark.fault_class(5)
def test_a_second_run_does_nothing(canon: Canon) -> None:
    canon.deliver("concepts/ovens.md", DECISION)
    apply(canon.door)
    before = canon.bench.meta().commit_seq
    again = apply(canon.door)
    assert (again.counts, again.unchanged) == ({}, 1)
    assert canon.bench.meta().commit_seq == before


@pytest.mark.fault_class(11)
def test_commands_that_are_sent_twice_are_done_once(canon: Canon) -> None:
    canon.deliver("concepts/ovens.md", DECISION)
    (action,) = preview(canon.door).actions
    command = Command(action["op"], action["input"], action["idempotency_key"])
    canon.door.tell([command, command])
    assert len(canon.claims()) == 1


def test_an_edit_elsewhere_in_the_file_leaves_the_claim_as_it_is(canon: Canon) -> None:
    canon.deliver("concepts/ovens.md", DECISION)
    apply(canon.door)
    canon.deliver("concepts/ovens.md", DECISION + "More.\n")
    assert canon.actions() == []


def test_a_changed_status_revises_its_claim(canon: Canon) -> None:
    task = node("x", "Task", title="Fix it", status="backlog")
    canon.deliver("projects/t.md", task)
    apply(canon.door)
    blocked = task.replace("status: backlog", "status: blocked\nblocked_reason: no flour")
    canon.deliver("projects/t.md", blocked)
    assert canon.actions() == [("revise", "Task Fix it is blocked: no flour")]
    apply(canon.door)
    (claim,) = canon.claims()
    assert (claim["revision_number"], claim["statement"]) == (2, "Task Fix it is blocked: no flour")
    assert len(claim["evidence"]) == 2


def test_a_rule_that_is_gone_is_retracted_and_the_others_stay(canon: Canon) -> None:
    canon.deliver("concepts/rules.md", node("- One.\n- Two.", "EngineRule"))
    apply(canon.door)
    canon.deliver("concepts/rules.md", node("- Two.\n- Three.", "EngineRule"))
    assert canon.actions() == [("assert", "Three."), ("retract", "/concepts/rules.md no longer says so")]
    apply(canon.door)
    assert canon.statements() == [("retracted", "One."), ("active", "Two."), ("active", "Three.")]


@pytest.mark.parametrize("ending", ["deprecated", "withdrawn"])
def test_claims_of_a_node_that_no_longer_counts_are_retracted_with_the_reason(canon: Canon, ending: str) -> None:
    canon.deliver("concepts/ovens.md", DECISION)
    apply(canon.door)
    if ending == "deprecated":
        canon.deliver("concepts/ovens.md", DECISION.replace("title:", "deprecated: true\ntitle:"))
    else:
        canon.withdraw("concepts/ovens.md")
    apply(canon.door)
    (claim,) = canon.claims()
    assert claim["status"] == "retracted"
    reasons = {"deprecated": "/concepts/ovens.md is deprecated", "withdrawn": "its node is no longer part of canon"}
    assert claim["retraction_reason"] == reasons[ending]
    assert canon.actions() == []


def test_what_a_person_retracted_stays_so_until_the_file_says_it_anew(canon: Canon) -> None:
    canon.deliver("concepts/ovens.md", DECISION)
    apply(canon.door)
    canon.bench.write("claim.retract", {"claim_id": canon.claims()[0]["claim_id"], "reason": "wrong"})
    assert canon.actions() == []
    canon.deliver("concepts/ovens.md", DECISION + "Still.\n")
    assert canon.actions() == [("assert", "Bake at night.")]


def test_claims_of_others_are_never_touched(canon: Canon) -> None:
    delivered = canon.deliver("concepts/ovens.md", DECISION)["artifact"]
    cited = {"artifact_id": delivered["artifact_id"], "revision_id": delivered["revision_id"]}
    canon.bench.claim("The oven is old.", evidence=[cited], actor="codex")
    canon.withdraw("concepts/ovens.md")
    assert canon.actions() == []


@pytest.mark.proves("okf-108")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"supersedes": "/concepts/old.md"}),
        ({"superseded_by": "/concepts/new.md"}, {}),
        ({"superseded_by": "/concepts/new.md"}, {"supersedes": "/concepts/old.md"}),
    ],
)
def test_the_claim_of_a_superseding_decision_supersedes_the_other_ones_once(canon: Canon, old: Json, new: Json) -> None:
    canon.deliver("concepts/old.md", node("x", "Decision", description="Bake at noon.", **old))
    canon.deliver("concepts/new.md", node("x", "Decision", description="Bake at night.", **new))
    done = apply(canon.door)
    assert (done.counts, done.refused) == ({"assert": 2, "supersede": 1}, {})
    assert {text: status for status, text in canon.statements()} == {
        "Bake at noon.": "superseded",
        "Bake at night.": "active",
    }
    edges = canon.bench.db.execute("SELECT relation FROM relations WHERE source_type = 'claim'").fetchall()
    assert edges == [("supersedes",)]
    assert canon.actions() == []


@pytest.mark.fault_class(53)
def test_pages_of_the_preview_tell_every_node_once(canon: Canon) -> None:
    for number in range(7):
        canon.deliver(f"concepts/d{number}.md", node("x", "Decision", description=f"Rule {number}."))
    seen: list[str] = []
    after: Json = {}
    while True:
        page = canon.bench.read("okf.compile", {"limit": 3, **after})
        seen += [each["input"]["statement"] for each in page["actions"]]
        if "next_after" not in page:
            break
        after = {"after": page["next_after"]}
    assert seen == [f"Rule {number}." for number in range(7)]


# --- validity ---------------------------------------------------------------------------------------------------------

FROM, UNTIL = "2026-05-01T06:30:00Z", "2026-05-15"
AROUND = (timedelta(days=-1), timedelta(milliseconds=-1), timedelta(), timedelta(milliseconds=1), timedelta(days=1))


@pytest.mark.proves("okf-109")
@pytest.mark.fault_class(41)
@pytest.mark.parametrize(
    "bounds", [{"valid_from": FROM}, {"invalid_at": UNTIL}, {"valid_from": FROM, "invalid_at": UNTIL}]
)
def test_a_claim_holds_exactly_when_recall_finds_its_node(canon: Canon, bounds: dict[str, str]) -> None:
    canon.deliver("concepts/menu.md", node("x", "Decision", description="Quaggastripe bread is sold.", **bounds))
    assert apply(canon.door).counts == {"assert": 1}
    answers: list[bool] = []
    for written in (FROM, f"{UNTIL}T00:00:00Z"):
        bound = clock.from_stored(clock.parse_timestamp(written))
        for distance in AROUND:
            canon.bench.clock.now = bound + distance
            found = canon.bench.read("okf.search", {"query": "quaggastripe"})["count"] == 1
            recalled = canon.bench.read("memory.recall", {"query": "quaggastripe bread"})["claims"]
            assert (len(recalled) == 1) is found, (written, distance)
            answers.append(found)
    assert answers == [
        *([distance >= timedelta() for distance in AROUND] if "valid_from" in bounds else [True] * 5),
        *([distance < timedelta() for distance in AROUND] if "invalid_at" in bounds else [True] * 5),
    ]


def test_a_node_that_ends_before_it_begins_states_nothing_and_says_why(canon: Canon) -> None:
    canon.deliver("concepts/menu.md", node("x", "Decision", description="Never.", valid_from=UNTIL, invalid_at=UNTIL))
    found = apply(canon.door)
    assert (found.counts, found.left_out) == ({}, {"/concepts/menu.md": "it ends before it begins"})


def test_a_changed_validity_makes_another_claim(canon: Canon) -> None:
    canon.deliver("concepts/menu.md", node("x", "Decision", description="Bread.", valid_from=FROM))
    apply(canon.door)
    canon.deliver("concepts/menu.md", node("x", "Decision", description="Bread.", invalid_at="2027-01-01"))
    apply(canon.door)
    assert [(each["status"], each.get("valid_from"), each.get("valid_until")) for each in canon.claims()] == [
        ("retracted", FROM, None),
        ("active", None, "2027-01-01T00:00:00Z"),
    ]
