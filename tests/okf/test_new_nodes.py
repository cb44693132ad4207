"""`memoree okf new`, as it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from memoree.okf.node import parse

from .test_bundle_cli import Okf, okf  # noqa: F401 - the fixture


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


def test_a_node_is_written_where_its_type_belongs_and_is_conformant(okf: Okf, root: Path) -> None:  # noqa: F811
    line = ("new", "task", "Mend the oven", "--root", root, "--field", "status=blocked")
    line += ("--field", "blocked_reason=no bricks", "--relation", "project=projects/bakery", "--tag", "oven")
    assert okf(*line).stdout == "/projects/task-mend-the-oven.md\n"
    node = parse("projects/task-mend-the-oven", (root / "projects/task-mend-the-oven.md").read_bytes())
    assert (node.native_type, node.native_title, node.tags) == ("Task", "Mend the oven", ["oven"])
    assert (node.text("status"), node.text("blocked_reason")) == ("blocked", "no bricks")
    assert node.relations == [("project", "/projects/bakery.md")]
    assert okf("validate", root).status == 0


def test_what_is_there_stays(okf: Okf, root: Path) -> None:  # noqa: F811
    assert okf("new", "Idea", "Rye on Sundays", "--root", root).status == 0
    before = (root / "concepts/idea-rye-on-sundays.md").read_bytes()
    okf("new", "Idea", "Rye on Sundays", "--root", root, "--tag", "rye").refused("exists; write a node that supersedes")
    assert (root / "concepts/idea-rye-on-sundays.md").read_bytes() == before


def test_what_a_type_needs_is_asked_for_by_name(okf: Okf, root: Path) -> None:  # noqa: F811
    okf("new", "Decision", "Keep the cash", "--root", root).refused("agreed_on: a Decision needs one")
    okf("new", "Task", "Mend", "--root", root, "--field", "status=Blockd").refused("status: a Task is one of backlog")
    okf("new", "Recipe", "Bread", "--root", root).refused("'Recipe' is not one of")
    okf("new", "Task", "Mend", "--root", root, "--field", "status").refused("--field: NAME=VALUE")
    assert not list(root.rglob("*.md"))


@pytest.mark.fault_class(21)
def test_no_path_leads_out_of_the_bundle(okf: Okf, root: Path, tmp_path: Path) -> None:  # noqa: F811
    okf("new", "Task", "Mend", "--root", root, "--path", "../mend").refused("must be a path inside the bundle")
    (tmp_path / "outside").mkdir()
    (root / "projects").symlink_to(tmp_path / "outside")
    okf("new", "Task", "Mend", "--root", root).refused("its folder is a link out of the bundle")
    assert not list((tmp_path / "outside").iterdir())


def test_a_node_can_be_looked_at_without_being_written(okf: Okf, root: Path) -> None:  # noqa: F811
    done = okf("new", "Plan", "Ovens", "--root", root, "--supersedes", "projects/plan-old", "--print")
    assert parse("x", done.stdout.encode()).supersedes == ["/projects/plan-old.md"]
    assert not list(root.iterdir())
