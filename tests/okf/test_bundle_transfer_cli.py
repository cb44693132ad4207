"""`memoree okf share` and `memoree okf adopt`, as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from .bundle_support import node, write
from .golden import BUNDLE, needs_golden
from .test_bundle_cli import Okf, okf  # noqa: F401 - the fixture
from .test_bundle_export import tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "root", {"concepts/b.md": node("Mine.", visibility="public"), "secret/s.md": node("S.")})


@pytest.mark.proves("okf-102")
def test_a_dry_run_and_a_refusal_write_nothing(okf: Okf, tmp_path: Path, root: Path) -> None:  # noqa: F811
    full = write(tmp_path / "full", {"mine.txt": "mine"})
    before = tree(tmp_path)
    done = okf("share", tmp_path / "new" / "deep", "--root", root, "--dry-run")
    assert (done.status, done.lines[0]) == (0, f"would export 3 files to {tmp_path}/new/deep")
    assert okf("share", full, "--root", root, "--dry-run").status == 0
    okf("share", full, "--root", root).refused("is not empty: it holds 'mine.txt'")
    okf("share", root / "out", "--root", root).refused("inside the bundle")
    okf("share", tmp_path / "new", "--root", root, "--visibility", "secret").refused("visibility: one of")
    okf("share", "--root", root).refused("DIRECTORY")
    assert tree(tmp_path) == before
    assert not (tmp_path / "new").exists()


@pytest.mark.proves("okf-101")
@needs_golden
def test_an_export_of_the_golden_bundle_holds_no_hidden_word(okf: Okf, tmp_path: Path) -> None:  # noqa: F811
    done = okf("share", tmp_path / "out", "--root", BUNDLE, "--json")
    data = done.envelope("export")
    assert data["leftOut"] == {"reserved name": 1, "secret": 1}
    written = tree(tmp_path / "out")
    assert sorted(written) == sorted(data["files"])
    assert not [
        mark for mark in (b"HIDDENMARK", b"VAULTMARK", b"INBOXMARK") for text in written.values() if mark in text
    ]


@pytest.mark.proves("okf-104")
def test_an_import_with_refusals_succeeds_and_a_wrong_line_does_not(okf: Okf, tmp_path: Path, root: Path) -> None:  # noqa: F811
    source = write(tmp_path / "source", {"concepts/a.md": node(), "concepts/b.md": node(), "bare.md": "x"})
    done = okf("adopt", source, "--root", root, "--into", "concepts")
    assert (done.status, done.stdout) == (0, "imported concepts/a.md\n")
    assert done.stderr.splitlines() == [
        "⚠ bare.md is not imported: it has no front matter",
        "⚠ concepts/b.md is not imported: there is such a node already",
    ]
    data = okf("adopt", source, "--root", root, "--json").envelope("import")
    assert len(data["written"]) == 2
    assert data["refused"] == [{"path": "bare.md", "reason": "it has no front matter"}]
    okf("adopt", source, "--root", root, "--into", "canon").refused("--into: one of inbox, concepts")
    okf("adopt", tmp_path / "gone", "--root", root).refused("does not exist")
    okf("adopt", "--root", root).refused("DIRECTORY")
