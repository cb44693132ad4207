"""Which files of a directory are nodes."""

from __future__ import annotations

import os
import sys
import time
import unicodedata
from pathlib import Path

import pytest

from memoree.errors import MemoreeError
from memoree.limits import OKF_NODE_BYTES_MAX
from memoree.okf import bundle, graph, ids, listing
from memoree.okf.bundle import EVERYTHING, FOLDERS_DEEP_MAX, Findings, Tiers
from memoree.okf.dialect import Dialect
from memoree.okf.validate import validate

from .bundle_support import hits, node, walked, write
from .golden import BUNDLE, needs_golden

LARGE_WALK_SECONDS_MAX = 60.0


@pytest.mark.proves("okf-2")
@needs_golden
@pytest.mark.parametrize("tiers", [Tiers(), EVERYTHING])
def test_templates_and_the_ledger_of_the_golden_bundle_are_no_nodes(tiers: Tiers) -> None:
    found = walked(BUNDLE, tiers=tiers)
    assert (BUNDLE / "concepts" / "_template.md").exists()
    assert "concepts/_template" not in found
    assert not [node_id for node_id in found if node_id.startswith("ledger")]


@pytest.mark.proves("okf-2")
@pytest.mark.parametrize(
    "path",
    [
        "concepts/_template.md",
        "ledger/notes.md",
        "concepts/deep/docs/guide.md",
        "docs/guide.md",
        "a/b/node_modules/c/readme.md",
        "a/.git/x.md",
        "_private/x.md",
        ".hidden.md",
        "tools/x.md",
        "demo/x.md",
        "fleet/x.md",
        "bench/x.md",
        "upper.MD",
        "text.txt",
        "name.md.bak",
    ],
)
@pytest.mark.parametrize("dialect", Dialect)
def test_these_are_skipped_wherever_they_lie(tmp_path: Path, path: str, dialect: Dialect) -> None:
    root = write(tmp_path, {path: node(), "concepts/kept.md": node(), "concepts/documents/docs.md": node()})
    assert list(walked(root, dialect, EVERYTHING)) == ["concepts/documents/docs", "concepts/kept"]


def test_tiers_are_folders_at_the_top_only(tmp_path: Path) -> None:
    paths = ("inbox/a.md", "mirror/engine/a.md", "concepts/inbox/a.md", "concepts/mirror/a.md")
    root = write(tmp_path, dict.fromkeys(paths, node()))
    assert list(walked(root)) == ["concepts/inbox/a", "concepts/mirror/a"]
    assert "inbox/a" in walked(root, tiers=Tiers(inbox=True))
    assert "mirror/engine/a" in walked(root, tiers=Tiers(mirror=True))


@pytest.mark.proves("okf-4")
@pytest.mark.parametrize("dialect", Dialect)
def test_an_index_counts_with_its_links_and_is_no_concept(tmp_path: Path, dialect: Dialect) -> None:
    root = write(
        tmp_path,
        {
            "concepts/index.md": "# Concepts\n\n[a](a.md) and [quokka](/b.md), not [gone](gone.md)\n",
            "concepts/a.md": node(),
            "b.md": node(),
        },
    )
    found = graph.of_bundle(root, dialect)
    assert [(edge.source, edge.target) for edge in found.edges] == [
        ("concepts/index", "concepts/a"),
        ("concepts/index", "b"),
    ]
    assert found.broken == ["concepts/index → gone.md (broken)"]
    assert [each.id for each in found.nodes] == ["b", "concepts/a"]
    assert found.orphans == []
    assert [each.id for each in listing.concepts(walked(root, dialect).values())] == ["b", "concepts/a"]
    assert hits(root, "quokka", dialect=dialect) == []
    assert validate(root, dialect).is_conformant, "without front matter, and nobody minds"


def test_an_empty_directory_is_a_bundle_and_a_missing_one_is_not(tmp_path: Path) -> None:
    assert walked(tmp_path) == {}
    assert validate(tmp_path, Dialect.SERVICE).concepts == 0
    write(tmp_path, {"file.md": node()})
    with pytest.raises(MemoreeError, match="does not exist"):
        walked(tmp_path / "missing")
    with pytest.raises(MemoreeError, match="is not a directory"):
        walked(tmp_path / "file.md")


@pytest.mark.fault_class(34)
def test_names_that_differ_are_different_nodes_whatever_they_look_like(tmp_path: Path) -> None:
    composed, decomposed = unicodedata.normalize("NFC", "café"), unicodedata.normalize("NFD", "café")
    paths = [f"{composed}.md", f"{decomposed}.md", "Case.md", "case.md", "a b.md", "-dash.md", "line\nbreak.md"]
    root = write(tmp_path, {path: node(f"Quokka number{at}.") for at, path in enumerate(paths)})
    assert sorted(walked(root)) == sorted(path.removesuffix(".md") for path in paths)
    assert hits(root, "number0") == [composed]
    assert hits(root, "number1") == [decomposed]
    assert [ids.matching(name, walked(root)) for name in (composed, decomposed)] == [[composed], [decomposed]]


@pytest.mark.skipif(sys.platform != "linux", reason="names of bytes are Linux's")
def test_a_name_that_is_no_utf_8_is_told_of_and_passed_over(tmp_path: Path) -> None:
    root = write(tmp_path, {"kept.md": node()})
    (Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.md"))).write_text(node())
    met = Findings()
    assert [file.path for file in bundle.files(root, findings=met)] == ["kept.md"]
    assert list(met.unreadable.values()) == ["its name is not UTF-8"]


def test_files_and_folders_beyond_the_bounds_are_told_of_and_passed_over(tmp_path: Path) -> None:
    deep = "/".join("d" for _ in range(FOLDERS_DEEP_MAX + 1))
    root = write(tmp_path, {f"{deep}/x.md": node(), "kept.md": node(), "large.md": b"x" * (OKF_NODE_BYTES_MAX + 1)})
    os.mkfifo(root / "pipe.md")
    met = Findings()
    assert [file.path for file in bundle.files(root, findings=met)] == ["kept.md"]
    assert set(met.unreadable) == {deep, "large.md"}


def test_ten_thousand_files_are_walked_and_checked_in_their_order(tmp_path: Path) -> None:
    count = 10_000
    text = node("[next](/concepts/n00001.md)", supersedes="/concepts/n00000.md")
    root = write(tmp_path, {f"concepts/n{at:05}.md": text for at in range(count)})
    started = time.monotonic()
    report = validate(root, Dialect.SERVICE)
    assert time.monotonic() - started < LARGE_WALK_SECONDS_MAX
    assert report.concepts == count
    assert sum(finding.rule == "V12" for finding in report.findings) == count
    assert [finding.text for finding in report.findings if finding.rule == "V14"] == [
        "supersedes cycle: concepts/n00000 → concepts/n00000"
    ]
    order = [file.id for file in bundle.files(root)]
    assert order == sorted(order) and len(order) == count
