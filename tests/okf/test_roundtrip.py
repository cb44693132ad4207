"""What goes in comes out, byte for byte, and goes in again as what it was."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from memoree.okf import bundle, exporting, graph
from memoree.okf.bundle import Tiers
from memoree.okf.dialect import Dialect
from memoree.okf.node import parse
from memoree.okf.validate import validate

from .golden import BUNDLE, needs_golden
from .stored import node, opened, write


@needs_golden
@pytest.mark.proves("okf-15")
def test_every_canon_file_of_the_golden_bundle_comes_back_byte_for_byte(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as store:
        store.imported(BUNDLE)
        found = exporting.export(store.files().items())
    exporting.write(found.files, tmp_path / "out")
    canon = {
        file.path: file.data
        for file in bundle.files(BUNDLE)
        if not (read := parse(file.id, file.data)).is_secret and not read.is_reserved
    }
    assert len(canon) == 28
    written = {file.path: file.data for file in bundle.files(tmp_path / "out")}
    assert {path: written.get(path) for path in canon} == canon
    assert set(written) - set(canon) == {"index.md", "log.md"}


@needs_golden
@pytest.mark.proves("okf-15")
def test_the_store_has_the_bytes_of_reserved_files_and_mirrors_too(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as store:
        store.imported(BUNDLE, include_mirror=True)
        kept = store.files()
    walked = {file.path: file.data for file in bundle.files(BUNDLE, Tiers(mirror=True))}
    assert kept == {path: data for path, data in walked.items() if not parse(path[:-3], data).is_secret}
    assert "concepts/index.md" in kept


NAMES = [
    f"{folder}{name}" for folder in ("", "concepts/", "projects/deep/", "archive/") for name in ("a", "b-c", "дом")
]
words = some.text(alphabet="ab дом-é#:[]{}'\"!&*|>%@`\\\t", max_size=20)
targets = some.sampled_from([*(f"/{name}.md" for name in NAMES), "/ghost.md", "../out.md", "a.md"])
lines = some.one_of(
    some.builds("title: {}".format, words),
    some.builds("type: {}".format, some.sampled_from(["Concept", "Plan", "Task", "Idea", "Entity", "\t"])),
    some.builds("status: {}".format, some.sampled_from(["draft", "blocked", "Done", "odd", ""])),
    some.builds("tags: {}".format, words),
    some.builds("visibility: {}".format, some.sampled_from(["public", "internal", "secret", "Public # all", "odd"])),
    some.builds("timestamp: {}".format, some.sampled_from(["2026-01-01", "yesterday", "2026-02-30"])),
    some.builds("supersedes: {}".format, targets),
    some.builds("superseded_by: [{}]".format, targets),
    some.builds(
        "relations:\n  {}: {}".format,
        some.sampled_from(["about", "informs", "led_to", "spawned_by", "supersedes", "next", "odd"]),
        targets,
    ),
    words,
)
bodies = some.one_of(words, some.builds("see [it]({}) and `[code](x.md)`".format, targets), some.just("a\r\nb\0\n"))
texts = some.one_of(
    some.builds(
        lambda front, body, end: "---\n" + "".join(f"{line}\n" for line in front) + f"---{end}{body}",
        some.lists(lines, max_size=6),
        bodies,
        some.sampled_from(["\n", "\n\n", ""]),
    ),
    bodies,
)
contents = some.one_of(
    texts.map(str.encode), texts.map(lambda text: text.replace("\n", "\r\n").encode()), some.binary()
)
bundles = some.dictionaries(
    some.one_of(some.sampled_from(NAMES), some.sampled_from(["index", "concepts/index", "log"])).map("{}.md".format),
    contents,
    max_size=8,
)


@pytest.mark.proves("okf-15")
@pytest.mark.proves("okf-106")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(bundles)
def test_an_export_of_an_import_is_the_same_bundle(files: dict[str, bytes]) -> None:
    """Reserved files below the top and secrets stay behind; what is in the export is what it was, is judged as it was,
    and imports as it was."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        root = write(place / "bundle", dict(files))
        root.mkdir(exist_ok=True)
        kept = {path: data for path, data in files.items() if not parse(path[:-3], data).is_secret}
        with opened(place / "data") as store:
            store.imported(root)
            assert store.files() == kept
            assert store.imported(root).commands == 0
            judged, linked = store.ask("okf.validate"), store.ask("okf.links")
            out = exporting.export(store.files().items())
            assert store.ask("verify")["ok"] is True
        clean = write(place / "clean", dict(kept))
        clean.mkdir(exist_ok=True)
        assert judged == validate(clean, Dialect.SERVICE).to_json()
        assert linked == graph.of_bundle(clean, Dialect.SERVICE).to_json()
        exporting.write(out.files, place / "out")
        nodes = {path: data for path, data in kept.items() if not parse(path[:-3], data).is_reserved}
        assert {path: data for path, data in out.files if path in nodes} == nodes
        with opened(place / "again") as second:
            second.imported(place / "out")
            assert exporting.export(second.files().items()).files == out.files


def test_what_was_edited_in_the_store_is_exported_as_it_is_there(tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", {"projects/t.md": node("T", type="Task", status="backlog")})
    with opened(tmp_path / "data") as store:
        store.imported(root)
        revision = store.listing()["projects/t.md"]["revision_id"]
        store.tell("task.set_status", id="projects/t", status="done", if_revision=revision)
        out = dict(exporting.export(store.files().items()).files)
        assert out["projects/t.md"] == node("T", type="Task", status="done").encode()
        write(root, {"projects/t.md": out["projects/t.md"]})
        assert store.imported(root).unchanged == 1
