"""What is secret stays hidden, however it is written and wherever it lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memoree.okf import bundle, dates, exporting, recalling
from memoree.okf.bundle import EVERYTHING, Findings, Tiers
from memoree.okf.dialect import Dialect
from memoree.okf.ranking import Query
from memoree.okf.validate import validate

from .bundle_support import AT, hits, milliseconds, node, search, walked, write
from .golden import BUNDLE, needs_golden

SECRET_FILES: dict[str, str | bytes] = {
    "upper": node("Quokka.", visibility="Secret"),
    "quoted": node("Quokka.", visibility='"secret"'),
    "single quotes": node("Quokka.", visibility="'secret'"),
    "quoted twice": node("Quokka.", visibility="\"'secret'\""),
    "comment": node("Quokka.", visibility="secret # for now"),
    "comment without space": node("Quokka.", visibility="secret# for now"),
    "unknown": node("Quokka.", visibility="confidential"),
    "misspelt": node("Quokka.", visibility="secrte"),
    "list": node("Quokka.", visibility="[secret]"),
    "block list": "---\ntype: Concept\nvisibility:\n  - secret\n---\nQuokka.\n",
    "map": "---\ntype: Concept\nvisibility: {is: secret}\n---\nQuokka.\n",
    "tagged": node("Quokka.", visibility="!!str secret"),
    "anchored": node("Quokka.", visibility="&a secret"),
    "quoted key": '---\ntype: Concept\n"visibility": secret\n---\nQuokka.\n',
    "spaced key": "---\ntype: Concept\nvisibility : secret\n---\nQuokka.\n",
    "CRLF": node("Quokka.", visibility="secret").replace("\n", "\r\n").encode(),
    "CR": node("Quokka.", visibility="secret").replace("\n", "\r").encode(),
    "byte order mark": b"\xef\xbb\xbf" + node("Quokka.", visibility="secret").encode(),
    "trailing blanks": "---  \ntype: Concept\nvisibility: secret\n---\t\nQuokka.\n",
    "blank line first": "\n" + node("Quokka.", visibility="secret"),
    "never closed": "---\ntype: Concept\nvisibility: secret\nQuokka.\n",
    "second document": "---\ntype: Concept\n...\nvisibility: secret\n---\nQuokka.\n",
    "unreadable line": "---\ntype: Concept\n] visibility secret [\n---\nQuokka.\n",
    "folded": "---\ntype: Concept\nvisibility: >-\n  secret\n---\nQuokka.\n",
    "key in capitals": "---\ntype: Concept\nVisibility: secret\n---\nQuokka.\n",
    "both cases": "---\ntype: Concept\nVISIBILITY: secret\nvisibility: public\n---\nQuokka.\n",
    "zero width": node("Quokka.", visibility="sec\u200bret"),
}
SECRET_PATHS = [
    "secret/x.md",
    "Secret/x.md",
    "concepts/secret/x.md",
    "concepts/SECRET/deeper/x.md",
    "a/b/c/secret/d/x.md",
]


@pytest.mark.proves("okf-12")
@pytest.mark.parametrize("name", SECRET_FILES)
def test_a_file_that_says_secret_in_any_way_is_hidden_everywhere(tmp_path: Path, name: str) -> None:
    files: dict[str, str | bytes] = {"concepts/hidden.md": SECRET_FILES[name], "concepts/open.md": node("Quokka too.")}
    assert_hidden(write(tmp_path, files), "concepts/hidden")


@pytest.mark.proves("okf-12")
@pytest.mark.parametrize("path", SECRET_PATHS)
def test_a_file_in_a_folder_of_secrets_is_hidden_at_any_depth(tmp_path: Path, path: str) -> None:
    root = write(tmp_path, {path: node("Quokka.", visibility="public"), "concepts/open.md": node("Quokka too.")})
    assert_hidden(root, path.removesuffix(".md"))


def assert_hidden(root: Path, node_id: str) -> None:
    assert list(walked(root)) == ["concepts/open"]
    assert hits(root, "quokka") == ["concepts/open"]
    assert [
        path for path, _ in exporting.export((file.path, file.data) for file in bundle.files(root, EVERYTHING)).files
    ] == [
        "concepts/open.md",
        "index.md",
        "log.md",
    ]
    assert node_id in walked(root, tiers=Tiers(secret=True)), "and is there for who may see it"


@pytest.mark.proves("okf-12")
def test_what_hides_because_it_is_misread_is_told_of_and_what_is_secret_is_not(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "concepts/unknown.md": node(visibility="confidential"),
            "concepts/broken.md": "---\ntype: Concept\n] [\n---\n",
            "concepts/hidden.md": node(visibility="secret", importance="[", timestamp="never"),
            "secret/broken.md": "---\n] [\n---\n",
            "concepts/secret/unknown.md": node(visibility="confidential"),
        },
    )
    report = validate(root, Dialect.SERVICE)
    assert [(finding.rule, finding.text.split(":")[0]) for finding in report.findings] == [
        ("V15", "concepts/unknown"),
        ("V18", "concepts/broken"),
    ]
    assert report.concepts == 0


@pytest.mark.proves("okf-3")
@needs_golden
@pytest.mark.parametrize("dialect", Dialect)
def test_a_secret_node_among_the_concepts_is_there_only_when_secrets_are(dialect: Dialect) -> None:
    assert "concepts/hidden" not in walked(BUNDLE, dialect)
    assert walked(BUNDLE, dialect, Tiers(secret=True))["concepts/hidden"].visibility == "secret"


def test_hidden_words_leave_no_trace_in_the_scores_of_others(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"a.md": node("Quokka rye."), "b.md": node("Barley and oats.")}
    secrets: dict[str, str | bytes] = {f"s{at}.md": node("Quokka " * 9, visibility="Secret") for at in range(9)}
    without = search(write(tmp_path / "without", files), "quokka").hits
    beside = search(write(tmp_path / "with", files | secrets), "quokka").hits
    assert [(hit.row.node_id, hit.score) for hit in beside] == [(hit.row.node_id, hit.score) for hit in without]


def test_a_secret_node_replaces_nobody_and_is_named_by_no_label(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "a.md": node("Quokka."),
        "b.md": node("Quokka.", visibility="secret", supersedes="/a.md"),
    }
    root = write(tmp_path, files)
    query = Query("quokka", milliseconds(AT), include_superseded=True)
    found = recalling.recall(root, Dialect.SERVICE, query, "bm25")
    assert [(result.id, result.label) for result in found.results] == [("a", "")]


@pytest.mark.proves("okf-63")
@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("place", ["secret/vault", "concepts/vault"])
def test_a_secret_neighbour_is_never_expanded(tmp_path: Path, dialect: Dialect, place: str) -> None:
    files: dict[str, str | bytes] = {
        "a.md": f"---\ntype: Concept\nrelations:\n  about: [/{place}.md, /b.md]\n---\nQuokka.\n",
        "b.md": node("Wombat."),
        f"{place}.md": "---\ntype: Concept\nvisibility: secret\nrelations:\n  uses: /a.md\n---\n[a](/a.md)\n",
    }
    answer = search(write(tmp_path, files), "quokka", dialect=dialect, expand_budget=5)
    assert [each.row.node_id for each in answer.expanded or ()] == ["b"]
    shown = search(tmp_path, "quokka", dialect=dialect, expand_budget=5, tiers=Tiers(secret=True))
    assert place in [each.row.node_id for each in shown.expanded or ()], "the edge is there"


@pytest.mark.proves("okf-14")
@pytest.mark.fault_class(21)
def test_a_link_that_leaves_the_bundle_is_not_read_not_listed_and_told_of(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"x.md": node("Quokka."), "deep/y.md": node("Quokka.")})
    root = write(tmp_path / "bundle", {"concepts/open.md": node("Wombat.")})
    (root / "concepts" / "x.md").symlink_to(outside / "x.md")
    (root / "folder").symlink_to(outside / "deep")
    (root / "up.md").symlink_to(Path("..") / "outside" / "x.md")
    for dialect in Dialect:
        assert list(walked(root, dialect, EVERYTHING)) == ["concepts/open"]
        assert hits(root, "quokka", dialect=dialect) == []
    report = validate(root, Dialect.SERVICE)
    assert [(finding.rule, finding.severity, finding.text.split(":")[0]) for finding in report.findings] == [
        ("V19", "warning", "concepts/x.md"),
        ("V19", "warning", "folder"),
        ("V19", "warning", "up.md"),
    ]
    assert report.is_conformant


def test_a_link_into_hidden_folders_shows_nothing_of_them(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "secret/vault.md": node("Quokka."),
            "inbox/agent.md": "Quokka.",
            "concepts/secret/deep.md": node("Quokka."),
            "concepts/open.md": node("Wombat."),
        },
    )
    for at, target in enumerate(("secret/vault.md", "inbox/agent.md", "concepts/secret/deep.md", "concepts/open.md")):
        (root / f"link{at}.md").symlink_to(root / target)
    met = Findings()
    assert [file.path for file in bundle.files(root, findings=met)] == [
        "concepts/open.md",
        "concepts/secret/deep.md",
        "link3.md",
    ]
    assert set(met.unreadable) == {"link0.md", "link1.md", "link2.md"}
    assert hits(root, "quokka") == []


def test_links_to_folders_and_to_each_other_end(tmp_path: Path) -> None:
    root = write(tmp_path, {"concepts/open.md": node("Wombat.")})
    (root / "concepts" / "again").symlink_to(root, target_is_directory=True)
    (root / "one.md").symlink_to(root / "two.md")
    (root / "two.md").symlink_to(root / "one.md")
    met = Findings()
    assert [file.path for file in bundle.files(root, findings=met)] == ["concepts/open.md"]
    assert set(met.unreadable) == {"concepts/again", "one.md", "two.md"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_passed_over(tmp_path: Path) -> None:
    root = write(tmp_path, {"a.md": node(), "b.md": node(), "c/d.md": node()})
    (root / "b.md").chmod(0)
    (root / "c").chmod(0)
    try:
        assert list(walked(root)) == ["a"]
    finally:
        (root / "c").chmod(0o700)


def test_an_instant_at_the_edge_of_the_calendar_is_read() -> None:
    assert dates.milliseconds("9999-12-31T23:59:59.999Z") == 253402300799999
    assert dates.milliseconds("0000-01-01") is None
