"""What `validate` finds, rule by rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from memoree.okf.bundle import EVERYTHING, Tiers
from memoree.okf.dialect import Dialect
from memoree.okf.validate import Report, Section, check, cycles, validate

from .bundle_support import node, walked, write
from .golden import BUNDLE, needs_golden


def found(root: Path, dialect: Dialect = Dialect.SERVICE) -> list[tuple[str, str]]:
    return [(finding.rule, finding.text) for finding in validate(root, dialect).findings]


def of_files(
    tmp_path: Path, files: dict[str, str | bytes], dialect: Dialect = Dialect.SERVICE
) -> list[tuple[str, str]]:
    return found(write(tmp_path, files), dialect)


def counts(report: Report) -> dict[str, int]:
    return {section.value: len(report.of(section)) for section in Section if report.of(section)}


@pytest.mark.proves("okf-20")
@needs_golden
@pytest.mark.parametrize("dialect", Dialect)
def test_the_golden_bundle_conforms_with_these_warnings(dialect: Dialect) -> None:
    report = validate(BUNDLE, dialect)
    assert report.is_conformant
    assert report.concepts == 28
    assert counts(report) == {
        "Broken relations": 2,
        "Unknown relation kinds": 1,
        "Work discipline": 3,
        "Knowledge cycle": 1,
        "Supersede chains": 1,
    }
    assert report.render() == [
        "✅ OKF v0.1 conformant: 28 concepts, all have a non-empty type.",
        "⚠️ Broken relations (2):",
        "  projects/plan-badstatus [about] → /../../etc/hosts (outside bundle)",
        "  projects/plan-nostatus [covers] → /projects/ghost.md (path does not exist)",
        "⚠️ Unknown relation kinds (1):",
        "  projects/task-bad [frobnicates] — unknown relation kind",
        "⚠️ Work discipline (3):",
        "  projects/plan-badstatus: Plan 'status' outside dictionary "
        '(draft|agreed|in-progress|done|superseded): "Approved"',
        "  projects/plan-nostatus: Plan missing 'status'",
        "  projects/task-bad: Task 'blocked' missing 'blocked_reason'",
        "⚠️ Knowledge cycle (1):",
        "  concepts/idea-dead: Idea 'rejected' missing 'rejected_reason'",
        "",
        "# Supersede chains (1):",
        "  concepts/oven-schedule-v2 supersedes concepts/oven-schedule",
    ]


@needs_golden
def test_nodes_that_are_no_files_are_judged_the_same() -> None:
    nodes = list(walked(BUNDLE, tiers=EVERYTHING).values())
    assert check(nodes, Dialect.SERVICE).render() == validate(BUNDLE, Dialect.SERVICE).render()


@pytest.mark.proves("okf-21")
@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("# Only a body\n", ("V1", "concepts/x: no frontmatter")),
        ("---\ntitle: T\n---\nBody\n", ("V2", "concepts/x: empty/missing required 'type'")),
        ("---\ntype:\n---\nBody\n", ("V2", "concepts/x: empty/missing required 'type'")),
        ('---\ntype: "  "\n---\nBody\n', ("V2", "concepts/x: empty/missing required 'type'")),
    ],
)
def test_a_file_without_front_matter_or_type_does_not_conform(
    tmp_path: Path, dialect: Dialect, text: str, finding: tuple[str, str]
) -> None:
    report = validate(write(tmp_path, {"concepts/x.md": text, "concepts/good.md": node()}), dialect)
    assert [(each.rule, each.text) for each in report.findings] == [finding]
    assert [each.severity for each in report.findings] == ["error"]
    assert not report.is_conformant
    assert report.render() == ["❌ NOT conformant:", f"  {finding[1]}"]


@pytest.mark.proves("okf-22")
def test_a_plans_status_is_one_of_five_words_whatever_their_case(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"approved.md": node(node_type="Plan", status="Approved")}
    for at, status in enumerate(("draft", "Agreed", "IN-PROGRESS", "done", "superseded")):
        files[f"good{at}.md"] = node(node_type="plan", status=status)
    assert of_files(tmp_path, files) == [
        (
            "V7",
            "approved: Plan 'status' outside dictionary (draft|agreed|in-progress|done|superseded): \"Approved\"",
        )
    ]


@pytest.mark.proves("okf-23")
def test_a_blocked_task_says_why(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "silent.md": node(node_type="Task", status="blocked"),
        "blank.md": node(node_type="Task", status="Blocked", blocked_reason='"  "'),
        "told.md": node(node_type="Task", status="Blocked", blocked_reason="no flour"),
        "none.md": node(node_type="Task"),
    }
    assert of_files(tmp_path, files) == [
        ("V8", "blank: Task 'blocked' missing 'blocked_reason'"),
        ("V6", "none: Task missing 'status'"),
        ("V8", "silent: Task 'blocked' missing 'blocked_reason'"),
    ]


@pytest.mark.proves("okf-24", "okf-25")
@pytest.mark.parametrize("node_type", ["Decision", "Session", "Analysis", "Research", "Concept", "Anything"])
def test_other_types_may_say_any_status_or_none(tmp_path: Path, node_type: str) -> None:
    files: dict[str, str | bytes] = {"a.md": node(node_type=node_type), "b.md": node(node_type=node_type, status="odd")}
    assert of_files(tmp_path, files) == []


@pytest.mark.proves("okf-25")
def test_an_idea_has_a_status_and_a_rejected_one_a_reason(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "a.md": node(node_type="Idea", status="rejected"),
        "b.md": node(node_type="Idea", status="Rejected", rejected_reason="too dear"),
        "c.md": node(node_type="Idea"),
        "d.md": node(node_type="Idea", status="maybe"),
        "e.md": node(node_type="Idea", status="spark"),
    }
    assert of_files(tmp_path, files) == [
        ("V11", "a: Idea 'rejected' missing 'rejected_reason'"),
        ("V9", "c: Idea missing 'status'"),
        ("V10", "d: Idea 'status' outside dictionary (spark|incubating|adopted|rejected): \"maybe\""),
    ]


@pytest.mark.proves("okf-26")
@pytest.mark.parametrize("dialect", Dialect)
def test_what_supersedes_nothing_and_what_supersedes_in_a_ring_is_told(tmp_path: Path, dialect: Dialect) -> None:
    files: dict[str, str | bytes] = {
        "a.md": node(supersedes="/b.md"),
        "b.md": node(supersedes="/a.md"),
        "lost.md": node(supersedes="[/gone.md]"),
        "self.md": node(supersedes="/self.md"),
        "outside.md": node(supersedes="/../x.md"),
    }
    assert of_files(tmp_path, files, dialect) == [
        ("V12", "a supersedes b"),
        ("V12", "b supersedes a"),
        ("V12", "lost supersedes gone (target not found)"),
        ("V12", "outside supersedes ../x (target not found)"),
        ("V12", "self supersedes self"),
        ("V13", "lost supersedes gone — target not found"),
        ("V13", "outside supersedes ../x — target not found"),
        ("V14", "supersedes cycle: a → b → a"),
        ("V14", "supersedes cycle: self → self"),
    ]


def test_a_long_chain_is_no_ring_and_needs_no_deep_stack() -> None:
    chain = {f"n{at}": [f"n{at + 1}"] for at in range(50_000)}
    assert list(cycles(chain)) == []
    chain["n50000"] = ["n0"]
    assert [len(ring) for ring in cycles(chain)] == [50_001]
    assert list(cycles({"a": ["b", "c"], "b": ["a"], "c": ["a", "d"], "d": []})) == [["a", "b"], ["a", "c"]]


@pytest.mark.proves("okf-27")
@pytest.mark.parametrize("dialect", Dialect)
def test_next_is_a_known_key_and_cites_is_not(tmp_path: Path, dialect: Dialect) -> None:
    text = (
        "---\ntype: Concept\nrelations:\n  next: /b.md\n  cites: /b.md\n  relations.about: /b.md\n  USES: /b.md\n---\n"
    )
    files: dict[str, str | bytes] = {"a.md": text.replace("  relations.about: /b.md\n", ""), "b.md": node()}
    assert of_files(tmp_path, files, dialect) == [("V5", "a [cites] — unknown relation kind")]


@pytest.mark.proves("okf-28")
@pytest.mark.parametrize("dialect", Dialect)
def test_raw_notes_of_the_inbox_are_judged_only_when_they_are_asked_for(tmp_path: Path, dialect: Dialect) -> None:
    inbox = '---\nokf_version: "0.1"\n---\n\n# Inbox — agent\n'
    root = write(tmp_path, {"inbox/agent.md": inbox, "a.md": node()})
    assert validate(root, dialect).findings == []
    report = validate(root, dialect, Tiers(inbox=True))
    assert [(each.rule, each.text) for each in report.findings] == [
        ("V2", "inbox/agent: empty/missing required 'type'")
    ]
    assert report.concepts == 2


@pytest.mark.proves("okf-29")
def test_warnings_stand_beside_errors_and_the_reference_program_keeps_most_to_itself(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "a.md": "no front matter",
        "b.md": node(node_type="Task"),
        "c.md": node(supersedes="/gone.md"),
        "d.md": "---\ntype: Idea\nstatus: odd\nrelations:\n  about: /gone.md\n---\n",
    }
    root = write(tmp_path, files)
    errors = ["❌ NOT conformant:", "  a: no frontmatter"]
    broken = ["⚠️ Broken relations (1):", "  d [about] → /gone.md (path does not exist)"]
    lost = ["⚠️ Supersede issues (1):", "  c supersedes gone — target not found"]
    assert validate(root, Dialect.COMPAT).render() == [*errors, *broken, *lost]
    assert validate(root, Dialect.SERVICE).render() == [
        *errors,
        *broken,
        "⚠️ Work discipline (1):",
        "  b: Task missing 'status'",
        "⚠️ Knowledge cycle (1):",
        "  d: Idea 'status' outside dictionary (spark|incubating|adopted|rejected): \"odd\"",
        "",
        "# Supersede chains (1):",
        "  c supersedes gone (target not found)",
        *lost,
    ]


def test_the_service_warns_of_what_the_reference_program_does_not_look_at(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "a.md": node(visibility="confidential"),
        "b.md": node(timestamp="yesterday", valid_from="2026-13-01", invalid_at="2026-01-01T10:00"),
        "c.md": "---\ntype: Concept\nrelations:\n  supersedes: /b.md\n---\n",
        "d.md": "---\ntype: [\n] x\n---\n",
        "e.md": "---\ntype: Concept\nsupersedes: /b.md\nrelations:\n  supersedes: /b.md\n---\n",
    }
    rules = [(rule, text.split(":")[0]) for rule, text in of_files(tmp_path, files)]
    assert [each for each in rules if each[0] >= "V15"] == [
        ("V15", "a"),
        ("V16", "b"),
        ("V16", "b"),
        ("V17", "c"),
        ("V18", "d"),
    ]
    reference = {rule for rule, _ in found(tmp_path, Dialect.COMPAT)}
    assert not reference & {"V15", "V16", "V17", "V18", "V19"}


@pytest.mark.proves("okf-54")
def test_supersession_under_relations_is_a_chain_like_any_other(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "a.md": "---\ntype: Plan\nstatus: done\nrelations:\n  supersedes: /b.md\n---\n",
        "b.md": node(),
    }
    assert ("V12", "a supersedes b") in of_files(tmp_path, files)
    assert "V12" not in {rule for rule, _ in found(tmp_path, Dialect.COMPAT)}


@pytest.mark.fault_class(21)
def test_no_relation_makes_the_check_look_outside(tmp_path: Path) -> None:
    (tmp_path / "outside.md").write_text(node())
    root = write(tmp_path / "bundle", {})
    (root / "link.md").symlink_to(tmp_path / "outside.md")
    targets = [
        "/../outside.md",
        "../outside.md",
        "/link.md",
        "/a/../../outside.md",
        "/x\x00y.md",
        "/" + "n" * 300 + ".md",
    ]
    for at, target in enumerate(targets):
        write(root, {f"n{at}.md": f"---\ntype: Concept\nrelations:\n  about: '{target}'\n---\n"})
    told = [(rule, text.split()[0]) for rule, text in found(root) if rule in ("V3", "V4", "V18")]
    assert told == [("V3", "n0"), ("V3", "n1"), ("V4", "n2"), ("V3", "n3"), ("V4", "n4"), ("V4", "n5")]
