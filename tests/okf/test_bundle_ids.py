"""Names that callers send."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.errors import MemoreeError
from memoree.okf import ids, listing
from memoree.okf.dialect import Dialect

from .bundle_support import node, walked, write

_touched: list[str] | None = None


def _watch(event: str, _arguments: tuple[object, ...]) -> None:
    if _touched is not None and event in ("open", "os.listdir", "os.scandir", "os.stat", "os.readlink"):
        _touched.append(event)


@contextmanager
def watched() -> Iterator[list[str]]:
    """What the interpreter itself tells of files that are touched."""
    global _touched
    if not getattr(_watch, "installed", False):
        sys.addaudithook(_watch)
        _watch.installed = True  # type: ignore[attr-defined]  # a hook stays for the life of the process
    _touched = []
    try:
        yield _touched
    finally:
        _touched = None


@pytest.mark.proves("okf-19")
@pytest.mark.fault_class(21)
@pytest.mark.parametrize(
    "given_id",
    ["../../etc/passwd", "/../../etc/passwd", "a/../../etc/passwd", "..", "a/..", "./a", "a//b", ".md", "/", "", " "],
)
@pytest.mark.parametrize("dialect", Dialect)
def test_a_name_that_leads_out_is_refused_before_any_file_is_touched(given_id: str, dialect: Dialect) -> None:
    with watched() as touched, pytest.raises(ids.InvalidId):
        ids.safe_id(given_id, dialect)
    assert touched == []


def test_the_watch_over_files_notices(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with watched() as touched:
        (tmp_path / "x").read_text()
    assert touched == ["open"]


@pytest.mark.proves("okf-16")
@pytest.mark.fault_class(21)
@pytest.mark.parametrize(
    "given_id",
    ["a\x00b", "a\nb", "a\x7f", "a\\..\\b", "C:\\Windows\\win.ini", "C:/Windows/win.ini", "x" * 256, "ж" * 127],
)
def test_the_service_refuses_what_is_a_name_on_no_other_system(given_id: str) -> None:
    with pytest.raises(ids.InvalidId):
        ids.safe_id(given_id)


@given(st.text(max_size=60))
def test_what_the_guard_lets_through_stays_inside(given_id: str) -> None:
    try:
        name = ids.safe_id(given_id)
    except ids.InvalidId:
        return
    place = Path("/bundle") / f"{name}.md"
    assert not name.startswith("/")
    assert ".." not in place.parts
    assert place.is_relative_to("/bundle")
    assert ids.safe_id(ids.path_of(name)) == name or name != name.strip(), "a cited path names the same node"


@pytest.mark.proves("okf-17")
def test_the_end_of_an_id_names_a_node_that_is_the_only_one_to_have_it(tmp_path: Path) -> None:
    paths = ("projects/lumen.md", "concepts/lumen-sync.md", "concepts/twin.md", "entities/twin.md", "a/b/c.md", "c.md")
    nodes = list(walked(write(tmp_path, dict.fromkeys(paths, node()))).values())

    def found(given_id: str) -> str | None:
        each = listing.find(ids.safe_id(given_id), nodes)
        return None if each is None else each.id

    assert found("lumen") == found("lumen.md") == found("/projects/lumen.md") == "projects/lumen"
    assert found("umen") is None, "a part of a name is none"
    assert found("c") == "c", "the whole id comes first"
    assert found("b/c") == "a/b/c"
    assert found("nothing") is None
    with pytest.raises(MemoreeError, match="ambiguous: concepts/twin, entities/twin"):
        found("twin")
    assert found("entities/twin") == "entities/twin"


@given(st.one_of(st.none(), st.text(max_size=40)))
def test_an_agents_name_is_always_the_same_and_safe_for_a_file(given_name: str | None) -> None:
    name = ids.agent_name(given_name)
    assert name and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert ids.agent_name(name) == name
    assert not name.startswith("-") and not name.endswith("-") and "--" not in name
