"""Which context a command works in (machine protocol §2.4), from the functions and from the process."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from memoree import context
from memoree.errors import Code, MemoreeError

from .conftest import CONTEXT, Shell

MARKER = 'schema = 1\nworkspace_id = "wsp_m"\nproject_id = "prj_m"\nname = "m"\npins = []\n'
CONFIG = '[personal]\nworkspace_id = "wsp_personal"\nproject_id = "prj_inbox"\n'
SESSION = json.dumps(CONTEXT)


class Tree:
    """A directory to resolve from, an environment and a configuration file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.start = root / "outer" / "inner" / "deep"
        self.start.mkdir(parents=True)
        self.config = root / "config.toml"
        self.environ: dict[str, str] = {}

    def mark(self, *parts: str, text: str = MARKER) -> Path:
        path = self.root.joinpath(*parts, context.MARKER_NAME)
        path.write_text(text)
        return path

    def resolve(self) -> context.Resolution:
        return context.resolve(self.config, environ=self.environ, start=self.start)

    def refused(self) -> MemoreeError:
        with pytest.raises(MemoreeError) as caught:
            self.resolve()
        return caught.value


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path.resolve())


@pytest.mark.proves("machine-49")
def test_the_session_wins_over_a_broken_marker_and_a_broken_config(tree: Tree) -> None:
    tree.mark("outer", text="broken [")
    tree.config.write_text("broken [")
    tree.environ[context.CONTEXT_VARIABLE] = SESSION
    found = tree.resolve()
    assert (found.source, found.context.project_id, found.path) == ("session", "prj_kiln", None)


@pytest.mark.proves("machine-52")
def test_the_nearest_marker_wins_without_reading_the_config(tree: Tree) -> None:
    tree.config.write_text("broken [")
    tree.mark("outer")
    inner = tree.mark("outer", "inner", text=MARKER.replace("prj_m", "prj_inner"))
    found = tree.resolve()
    assert (found.source, found.context.project_id, found.path) == ("marker", "prj_inner", inner)


BROKEN_MARKERS = {
    "no TOML": "schema = [",
    "another schema": MARKER.replace("1", "9", 1),
    "a schema that is true": MARKER.replace("1", "true", 1),
    "an unknown key": MARKER + "horizon = 'personal'\n",
    "an empty workspace": MARKER.replace("wsp_m", ""),
    "a blank project": MARKER.replace("prj_m", "  "),
    "a long project": MARKER.replace("prj_m", "p" * 257),
    "no workspace": MARKER.replace("workspace_id", "#"),
    "no name": MARKER.replace("name", "#"),
    "a blank name": MARKER.replace('"m"', '" "'),
    "a number for a pin": MARKER.replace("[]", "[1]"),
    "a long pin": MARKER.replace("[]", f"['{'p' * 513}']"),
    "too many pins": MARKER.replace("[]", str(["p"] * 129)),
}


@pytest.mark.proves("machine-50", "machine-48")
@pytest.mark.parametrize("text", BROKEN_MARKERS.values(), ids=BROKEN_MARKERS)
def test_a_broken_nearest_marker_is_an_error_and_never_skipped(tree: Tree, text: str) -> None:
    tree.mark("outer")
    broken = tree.mark("outer", "inner", text=text)
    error = tree.refused()
    assert error.code is Code.CONFIG_ERROR
    assert error.message.startswith(str(broken))


def test_a_marker_that_is_no_readable_file_blocks_those_above(tree: Tree) -> None:
    tree.mark("outer")
    nearest = tree.root / "outer" / "inner" / context.MARKER_NAME
    for make in (
        lambda: nearest.symlink_to("nowhere"),
        nearest.mkdir,
        lambda: os.mkfifo(nearest),
        lambda: nearest.write_bytes(b"\xff"),
        lambda: nearest.write_bytes(b"#" * (context.SETTINGS_FILE_BYTES_MAX + 1)),
    ):
        make()
        assert tree.refused().code is Code.CONFIG_ERROR
        nearest.rmdir() if nearest.is_dir() else nearest.unlink()
    assert tree.resolve().context.project_id == "prj_m"


def test_tables_of_old_markers_are_accepted_and_mean_nothing(tree: Tree) -> None:
    tree.mark("outer", text=MARKER + "[project_index]\nenabled = true\n[metrics]\nenabled = true\n")
    assert tree.resolve().context.pins == []


BROKEN_SESSIONS = {
    "no JSON": "{",
    "an array": "[]",
    "an unknown member": json.dumps(CONTEXT | {"horizon": "personal"}),
    "an empty workspace": json.dumps(CONTEXT | {"workspace_id": ""}),
    "no project": json.dumps({"workspace_id": "w"}),
    "129 pins": json.dumps(CONTEXT | {"pins": ["p"] * 129}),
    "a pin of 513 bytes": json.dumps(CONTEXT | {"pins": ["p" * 513]}),
    "bytes that are no UTF-8": "\udcff",
}


@pytest.mark.proves("machine-51")
@pytest.mark.parametrize("value", BROKEN_SESSIONS.values(), ids=BROKEN_SESSIONS)
def test_a_wrong_session_variable_is_an_error_and_never_a_fallback(tree: Tree, value: str) -> None:
    tree.mark("outer")
    tree.environ[context.CONTEXT_VARIABLE] = value
    assert tree.refused().code is Code.CONFIG_ERROR


def test_a_blank_session_variable_counts_as_unset(tree: Tree) -> None:
    tree.mark("outer")
    tree.environ[context.CONTEXT_VARIABLE] = "  "
    assert tree.resolve().source == "marker"


@pytest.mark.parametrize("table", ["personal", "personal_fallback"])
def test_the_personal_fallback_is_the_last_resort(tree: Tree, table: str) -> None:
    tree.config.write_text(CONFIG.replace("personal", table, 1))
    found = tree.resolve()
    assert found.source == "personal"
    assert found.to_wire() == {
        "workspace_id": "wsp_personal",
        "project_id": "prj_inbox",
        "pins": [],
        "resolved_from": "personal",
        "horizon": "ambient",
        "broadened": False,
    }


@pytest.mark.proves("machine-48")
@pytest.mark.parametrize(
    "text",
    [
        "broken [",
        "schema = 9\n" + CONFIG,
        "horizon = 'workspace'\n",
        CONFIG + "horizon = 'personal'\n",
        CONFIG + "task_id = 'tsk_1'\n",
        CONFIG + CONFIG.replace("personal", "personal_fallback", 1),
    ],
)
def test_a_wrong_config_is_an_error(tree: Tree, text: str) -> None:
    tree.config.write_text(text)
    assert tree.refused().code is Code.CONFIG_ERROR


@pytest.mark.parametrize("text", [None, "", "schema = 1\n"])
def test_without_any_source_there_is_no_context(tree: Tree, text: str | None) -> None:
    if text is not None:
        tree.config.write_text(text)
    assert tree.refused().code is Code.NO_AMBIENT_CONTEXT


@pytest.mark.proves("machine-52")
def test_a_project_keeps_its_ids_when_its_directory_moves(tree: Tree) -> None:
    inner = tree.root / "outer" / "inner"
    context.create_marker(inner)
    before = tree.resolve().context
    inner.rename(tree.root / "moved")
    tree.start = tree.root / "moved" / "deep"
    assert tree.resolve().context == before


def test_a_marker_is_written_once_and_whole(tree: Tree) -> None:
    path = context.create_marker(tree.root, name='a "b"\n\x7f\\é')
    assert context.read_marker(path).pins == []
    body = path.read_bytes()
    with pytest.raises(MemoreeError) as caught:
        context.create_marker(tree.root, workspace_id="wsp_other")
    assert caught.value.code is Code.CONFIG_ERROR
    assert path.read_bytes() == body
    assert [entry.name for entry in tree.root.iterdir() if "tmp" in entry.name] == []


def test_a_marker_takes_the_workspace_and_the_name_of_its_directory(tree: Tree) -> None:
    path = context.create_marker(tree.root / "outer", workspace_id="wsp_team")
    assert context.read_marker(path).workspace_id == "wsp_team"
    assert 'name = "outer"' in path.read_text()


def test_a_task_is_named_by_workspace_project_and_name(tree: Tree) -> None:
    tree.mark("outer")
    place = tree.resolve().context
    task = context.task_context(place, "review").task_id
    assert task is not None and len(task) == 24 and task.startswith("tsk_")
    assert context.task_context(place, "review").task_id == task
    assert context.task_context(place, "other").task_id != task
    assert context.task_context(place.model_copy(update={"project_id": "p"}), "review").task_id != task


# --- the commands -----------------------------------------------------------------------------------------------


def test_init_show_and_explain_agree(shell: Shell) -> None:
    made = shell.run("init", "--name", "kiln").result
    assert made["created"] is True
    shown = shell.run("context", "show").envelope
    assert shown["result"] == made["context"]
    assert shown["context"] == made["context"] | {"resolved_from": "marker", "horizon": "ambient", "broadened": False}
    explained = shell.run("context", "explain").result
    assert explained["selected"] == "marker"
    assert explained["source_path"] == made["marker"]
    assert explained["precedence"] == ["session", "marker", "personal"]
    shell.run("init").refused("CONFIG_ERROR", 2)
    shell.run("init", "--directory", "missing").refused("CONFIG_ERROR", 2)
    assert not shell.home.exists()
    assert stat.S_ISREG(Path(made["marker"]).lstat().st_mode)


def test_show_without_a_context_says_so(shell: Shell) -> None:
    run = shell.run("context", "show")
    run.refused("NO_AMBIENT_CONTEXT", 5)
    assert run.envelope["request_id"] == "req_cli"


def test_a_session_gives_its_child_the_task_and_the_endpoint(project: Shell) -> None:
    printer = 'echo "$MEMOREE_CONTEXT $MEMOREE_ENDPOINT $MEMOREE_NO_AUTOSTART $*"; exit 7'
    options = ["--endpoint", "http://127.0.0.1:9", "--no-autostart"]
    run = project.run("session", "exec", *options, "--task", "review", "--", "sh", "-c", printer, "sh", "--pretty")
    assert run.status == 7
    exported, endpoint, autostart, rest = run.stdout.decode().split()
    assert json.loads(exported)["task_id"].startswith("tsk_")
    assert (endpoint, autostart, rest) == ("http://127.0.0.1:9", "true", "--pretty")


def test_what_follows_the_command_of_a_session_is_its_own(project: Shell) -> None:
    assert project.run("session", "exec", "--task", "t", "echo", "--pretty", "--help").stdout == b"--pretty --help\n"


def test_a_session_ends_as_its_child_does(project: Shell) -> None:
    assert project.run("session", "exec", "--task", "t", "--", "sh", "-c", "kill -9 $$").status == 1
    project.run("session", "exec", "--task", "t", "--", "no-such-program").refused("INVALID_REQUEST", 2)
    project.run("session", "exec", "--task", " ", "--", "true").refused("INVALID_REQUEST", 2)
