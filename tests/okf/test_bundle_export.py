"""What may leave a bundle, and how."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.errors import MemoreeError
from memoree.okf import bundle, exporting, frontmatter
from memoree.okf.bundle import EVERYTHING
from memoree.okf.dialect import Dialect
from memoree.okf.exporting import Export, check_target, export
from memoree.okf.validate import validate

from .bundle_support import node, walked, write
from .golden import BUNDLE, needs_golden

HIDDEN_MARKS = (b"HIDDENMARK", b"VAULTMARK", b"INBOXMARK", b"Mirrored")


def everything(root: Path) -> list[tuple[str, bytes]]:
    """All files of a bundle, whatever their tier: what an export is to choose from at worst."""
    return [(file.path, file.data) for file in bundle.files(root, EVERYTHING)]


def paths(found: Export) -> list[str]:
    return [path for path, _ in found.files]


def tree(root: Path) -> dict[str, bytes]:
    return {str(at.relative_to(root)): at.read_bytes() for at in sorted(root.rglob("*")) if at.is_file()}


@pytest.mark.proves("okf-101")
@needs_golden
@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("threshold", exporting.THRESHOLDS)
@pytest.mark.parametrize("gbrain", [False, True])
def test_no_secret_mirror_or_inbox_leaves_the_golden_bundle(dialect: Dialect, threshold: str, gbrain: bool) -> None:
    found = export(everything(BUNDLE), dialect, threshold=threshold, gbrain=gbrain)
    assert not [path for path, _ in found.files if path.split("/")[0] in ("secret", "mirror", "inbox")]
    assert "concepts/hidden.md" not in paths(found)
    assert not [mark for mark in HIDDEN_MARKS for _, data in found.files if mark in data]
    assert len(found.files) == (2 if threshold == "public" else 30), "the nodes of the walk, the index and the log"


@pytest.mark.proves("okf-101")
@needs_golden
def test_every_file_of_the_golden_bundle_leaves_as_it_is() -> None:
    found = dict(export(everything(BUNDLE)).files)
    ours = dict(everything(BUNDLE))
    assert set(found) == {f"{each.id}.md" for each in walked(BUNDLE).values() if not each.is_reserved} | {
        "index.md",
        "log.md",
    }
    assert {path: data for path, data in found.items() if data != ours[path]} == {}


@pytest.mark.proves("okf-101")
@pytest.mark.parametrize(
    ("path", "visibility", "reason"),
    [
        ("concepts/x.md", "Secret", "secret"),
        ("concepts/x.md", "unheard-of", "secret"),
        ("concepts/Secret/x.md", "public", "secret"),
        ("Mirror/x.md", "public", "mirror"),
        ("INBOX/x.md", "public", "inbox"),
        ("concepts/x.md", "mirror", "visibility"),
        ("concepts/index.md", "public", "reserved name"),
        ("../x.md", "public", "unsafe path"),
        ("a/../../x.md", "public", "unsafe path"),
        ("/x.md", "public", "unsafe path"),
        ("x.txt", "public", "unsafe path"),
    ],
)
def test_these_stay_whatever_is_asked_for(path: str, visibility: str, reason: str) -> None:
    for threshold in exporting.THRESHOLDS:
        found = export([(path, node(visibility=visibility).encode())], threshold=threshold)
        assert paths(found) == ["index.md", "log.md"]
        assert found.left_out == {reason: 1}


@pytest.mark.proves("okf-101")
@pytest.mark.parametrize("threshold", ["secret", "mirror", "", "Public", "3"])
def test_no_other_threshold_is_taken(threshold: str) -> None:
    with pytest.raises(MemoreeError, match="visibility: one of public, internal"):
        export([], threshold=threshold)


@given(
    st.sampled_from(["public", "internal", "secret", "mirror", "odd", "PUBLIC", ""]),
    st.sampled_from(["public", "internal"]),
)
def test_what_leaves_is_never_seen_by_fewer_than_the_threshold(visibility: str, threshold: str) -> None:
    found = export([("x.md", node(visibility=visibility).encode())], threshold=threshold)
    stated = visibility.lower() or "internal"
    assert ("x.md" in paths(found)) == (stated == "public" or (stated == "internal" and threshold == "internal"))


def test_a_secret_index_is_made_anew() -> None:
    found = dict(export([("index.md", b"---\nvisibility: secret\n---\nHIDDENMARK\n"), ("a.md", node().encode())]).files)
    assert b"HIDDENMARK" not in found["index.md"]
    assert found["index.md"] == b'---\nokf_version: "0.1"\n---\n\n# Index\n\n- [a](</a.md>)\n'
    assert found["log.md"] == b'---\nokf_version: "0.1"\n---\n\n# Log\n'


@pytest.mark.proves("okf-103")
@given(st.text(max_size=80), st.booleans())
def test_an_index_tells_its_version_once_and_keeps_the_rest(text: str, fenced: bool) -> None:
    text = f"---\ntitle: t\n---\n{text}" if fenced else text
    found = exporting.with_okf_version(text)
    assert exporting.with_okf_version(found) == found
    read = frontmatter.read(frontmatter.normalised(found.encode(errors="surrogatepass")), Dialect.SERVICE)
    assert read.problem is not None or (read.fields or {})["okf_version"] == "0.1"
    assert found.endswith(text if not fenced else text.removeprefix("---\n"))


@pytest.mark.proves("okf-103")
def test_an_index_with_carriage_returns_keeps_them() -> None:
    text = "---\r\ntitle: t\r\n---\r\nbody\r\n"
    assert exporting.with_okf_version(text) == '---\r\nokf_version: "0.1"\r\ntitle: t\r\n---\r\nbody\r\n'
    assert exporting.with_okf_version("---\n---\nx") == '---\nokf_version: "0.1"\n---\nx'


def test_what_leads_to_something_that_stays_is_told_of() -> None:
    text = "---\ntype: Concept\nsupersedes: /secret/old.md\nrelations:\n  about: /b.md\n---\n[b](b.md) [c](/c.md)\n"
    files: Iterable[tuple[str, bytes]] = [
        ("a.md", text.encode()),
        ("c.md", node().encode()),
        ("b.md", node(visibility="mirror").encode()),
    ]
    assert export(files).warnings == [
        "a [about] → /b.md is not in the export",
        "a [supersedes] → /secret/old.md is not in the export",
        "a → b.md is not in the export",
    ]


def test_gbrains_form_has_the_truth_the_time_and_what_is_near() -> None:
    text = (
        '---\ntype: Concept\ntitle: "A: b"\ntags: [x, "y, z"]\ntimestamp: 2026-01-02\nsource: [s, t]\n'
        "relations:\n  about: [/c.md, /gone.md]\n---\n\n# A\n\nBody.\n"
    )
    found = dict(export([("a.md", text.encode()), ("c.md", node().encode())], gbrain=True).files)
    assert found["a.md"].decode() == (
        '---\ntype: Concept\ntitle: "A: b"\ntags: [x, "y, z"]\n---\n\n## Compiled truth\n\n# A\n\nBody.\n\n'
        "## Timeline\n\n- 2026-01-02 · s, t\n\nRelated: [c](/c.md)\n"
    )


@pytest.mark.proves("okf-102")
def test_a_target_that_holds_something_is_refused_and_left_alone(tmp_path: Path) -> None:
    full = write(tmp_path / "full", {"mine.txt": "mine"})
    hidden = write(tmp_path / "hidden", {".hidden": "mine"})
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for target, reason in ((full, "not empty"), (hidden, "not empty"), (tmp_path / "file", "not a directory")):
        with pytest.raises(MemoreeError, match=reason):
            check_target(target)
    with pytest.raises(MemoreeError):
        check_target(tmp_path / "loop")
    with pytest.raises(MemoreeError, match="inside the bundle"):
        check_target(full / "out", full)
    assert tree(full) == {"mine.txt": b"mine"}


def test_an_export_is_written_whole_into_a_new_or_an_empty_directory(tmp_path: Path) -> None:
    files = [("concepts/a.md", b"A"), ("index.md", b"I"), ("x/y/z.md", b"Z")]
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new/deep"):
        exporting.write(files, check_target(tmp_path / name))
        assert tree(tmp_path / name) == dict(files)


@pytest.mark.proves("okf-102")
@pytest.mark.parametrize("was_there", [False, True])
def test_an_export_that_fails_half_way_leaves_nothing(tmp_path: Path, was_there: bool) -> None:
    target = tmp_path / "out"
    if was_there:
        target.mkdir()
    twice = [("a.md", b"A"), ("b.md", b"B"), ("a.md", b"again")]
    with pytest.raises(MemoreeError, match="nothing was exported"):
        exporting.write(twice, check_target(target))
    assert target.exists() == was_there
    assert tree(tmp_path) == {}


@needs_golden
def test_an_exported_bundle_is_judged_as_the_one_it_came_from(tmp_path: Path) -> None:
    exporting.write(export(everything(BUNDLE)).files, check_target(tmp_path / "out"))
    assert validate(tmp_path / "out", Dialect.SERVICE).render() == validate(BUNDLE, Dialect.SERVICE).render()
    assert export(everything(tmp_path / "out")).files == export(everything(BUNDLE)).files
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
