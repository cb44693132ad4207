"""The map of raw notes beside canon."""

from __future__ import annotations

import pytest

from memoree.okf import bundle, consolidation, masking
from memoree.okf.bundle import EVERYTHING
from memoree.okf.dialect import Dialect
from memoree.okf.likeness import contradictions
from memoree.okf.node import Node, parse

from .golden import BUNDLE, as_of_ms, needs_golden, vectors

AT_MS = 1_780_272_000_000


def node(node_id: str, front: str = "type: Concept", body: str = "") -> Node:
    return parse(node_id, f"---\n{front}\n---\n{body}".encode())


RAW = [
    node("concepts/rye"),
    node("mirror/cursor/Rye"),
    node("mirror/cursor/ovens"),
    node("mirror/claude-code/ovens"),
    node("mirror/cursor/yeast"),
    node("mirror/cursor/index"),
    node("inbox/cursor", "okf_version: 0.1"),
]


@pytest.mark.proves("okf-95")
def test_raw_names_are_covered_by_canon_or_a_gap_of_several_engines_or_of_one() -> None:
    found = consolidation.consolidated(RAW, at_ms=AT_MS)
    assert [(group.name, group.standing, group.engines, group.canon) for group in found.groups] == [
        ("cursor", "single", ["cursor"], None),
        ("ovens", "strong", ["claude-code", "cursor"], None),
        ("rye", "covered", ["cursor"], "concepts/rye"),
        ("yeast", "single", ["cursor"], None),
    ]
    assert [group.name for group in found.of("strong")] == ["ovens"]


@pytest.mark.proves("okf-95")
def test_two_notes_of_one_engine_are_no_strong_gap() -> None:
    found = consolidation.consolidated([node("mirror/cursor/a/ovens"), node("mirror/cursor/b/ovens")], at_ms=AT_MS)
    assert [(group.standing, group.raw) for group in found.groups] == [
        ("single", ["mirror/cursor/a/ovens", "mirror/cursor/b/ovens"])
    ]


def test_in_a_flat_bundle_every_node_with_fields_is_canon() -> None:
    flat = [node("rye"), parse("notes", b"no fields"), node("mirror/cursor/rye"), node("mirror/cursor/notes")]
    found = consolidation.consolidated(flat, at_ms=AT_MS)
    assert [(group.name, group.canon) for group in found.groups] == [("notes", None), ("rye", "rye")]


def test_secrets_are_in_no_line_of_the_report() -> None:
    nodes = [*RAW, node("secret/vault"), node("mirror/cursor/payroll", "type: Concept\nvisibility: secret")]
    report = consolidation.report(consolidation.consolidated(nodes, at_ms=AT_MS), at_ms=AT_MS)
    assert "vault" not in report
    assert "payroll" not in report


@needs_golden
def test_the_report_of_the_golden_bundle_names_its_one_raw_note_and_its_conflict() -> None:
    nodes = list(bundle.nodes(BUNDLE, Dialect.SERVICE, EVERYTHING))
    report = consolidation.report(consolidation.consolidated(nodes, at_ms=as_of_ms()), at_ms=as_of_ms())
    assert "- note (claude-code): `/mirror/claude-code/note.md`" in report
    assert "- `/concepts/route-north.md` and `/concepts/route-south.md`: 0.50" in report


@needs_golden
@pytest.mark.proves("okf-53")
def test_pairs_in_conflict_are_those_of_the_reference_program() -> None:
    nodes = list(bundle.nodes(BUNDLE, Dialect.COMPAT))
    told = [
        {"a": pair.one, "b": pair.other, "type": pair.type, "score": pair.likeness}
        for pair in contradictions(nodes, at_ms=as_of_ms())
    ]
    assert told == vectors("contradictions")


@pytest.mark.proves("okf-53")
def test_a_pair_of_which_one_is_deprecated_or_replaced_is_none() -> None:
    one, other = "type: Plan\ntitle: North van route", "type: Plan\ntitle: South van route"
    assert len(contradictions([node("a/1", one), node("a/2", other)], at_ms=AT_MS)) == 1
    for told in ("deprecated: true", "invalid_at: 2026-01-01", "superseded_by: /a/1.md", "supersedes: /a/1.md"):
        assert contradictions([node("a/1", one), node("a/2", f"{other}\n{told}")], at_ms=AT_MS) == []


@needs_golden
def test_tokens_are_masked_as_the_reference_program_masks_them() -> None:
    for vector in vectors("mask"):
        text, count = masking.masked(vector["in"])
        assert (text, count > 0, count) == (vector["text"], vector["masked"], vector["count"])
