"""What leaves the store as files: nothing that is secret, raw or copied, and only into an empty directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memoree.okf import bundle
from memoree.okf.node import parse

from .golden import BUNDLE, expected, needs_golden
from .stored import CONTEXT, node, opened, write

PROGRAM = Path(sys.executable).with_name("memoree")
SECONDS_MAX = 60.0
MARKER = "xylophone-velvet"


class Program:
    """The program of a user with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def run(self, *line: str | Path) -> tuple[int, dict[str, Any]]:
        """The exit status, and the result or the error."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MEMOREE_")}
        environment |= {"MEMOREE_HOME": str(self.home), "MEMOREE_CONTEXT": json.dumps(CONTEXT["context"])}
        done = subprocess.run(
            [PROGRAM, "okf", *line], env=environment, capture_output=True, timeout=SECONDS_MAX, check=False
        )
        answer = json.loads(done.stdout)
        return done.returncode, answer["result"] if answer["ok"] else answer["error"]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "home")


def listed(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


@needs_golden
@pytest.mark.proves("okf-15")
@pytest.mark.proves("okf-101")
def test_the_golden_bundle_comes_back_without_secrets_mirrors_and_inbox(program: Program, tmp_path: Path) -> None:
    status, imported = program.run("import", BUNDLE, "--include-mirror")
    assert (status, imported["created"]) == (0, 32)
    status, exported = program.run("export", tmp_path / "out")
    assert (status, exported["left_out"]) == (0, {"mirror": 1, "reserved name": 1})
    out = tmp_path / "out"
    assert listed(out) == sorted([*(f"{each}.md" for each in expected()["walk"]["default"]), "index.md", "log.md"])
    for file in bundle.files(out):
        if not parse(file.id, file.data).is_reserved:
            assert file.data == (BUNDLE / file.path).read_bytes()
    everything = b"".join((out / path).read_bytes() for path in listed(out))
    assert not [mark for mark in (b"HIDDENMARK", b"VAULTMARK", b"INBOXMARK") if mark in everything]


@pytest.mark.proves("okf-101")
@pytest.mark.parametrize("flags", [(), ("--visibility", "internal"), ("--visibility", "public"), ("--to-gbrain",)])
def test_no_flag_lets_a_secret_a_mirror_or_a_raw_note_leave(
    program: Program, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    with opened(tmp_path / "home" / "data") as store:
        hidden = {"secret/s.md": MARKER, "mirror/e/m.md": MARKER, "inbox/a.md": MARKER}
        told = {path: node("Hidden", text) for path, text in hidden.items()}
        root = write(tmp_path / "bundle", {"concepts/a.md": node("A", visibility="public"), **told})
        write(root, {"concepts/s.md": node("S", MARKER, visibility="secret"), "concepts/i.md": node("I", "inner")})
        store.imported(root, include_mirror=True)
        store.tell("inbox.put", content=MARKER)
    status, _ = program.run("export", tmp_path / "out", *flags)
    found = listed(tmp_path / "out")
    assert (status, "concepts/a.md" in found) == (0, True)
    assert ("concepts/i.md" in found) == ("public" not in flags)
    assert not [path for path in found if MARKER in (tmp_path / "out" / path).read_text()]
    assert {path.partition("/")[0] for path in found} == {"concepts", "index.md", "log.md"}


@pytest.mark.proves("okf-102")
def test_a_directory_with_anything_in_it_is_refused_and_left_alone(program: Program, tmp_path: Path) -> None:
    program.run("import", write(tmp_path / "bundle", {"concepts/a.md": node("A")}))
    out = write(tmp_path / "out", {"mine.txt": "mine"})
    status, error = program.run("export", out)
    assert (status, error["code"]) == (2, "INVALID_REQUEST")
    assert listed(out) == ["mine.txt"]
    status, rehearsed = program.run("export", tmp_path / "new", "--dry-run")
    assert (status, rehearsed["file_count"]) == (0, 3)
    assert not (tmp_path / "new").exists()


def test_where_no_store_is_none_is_made_by_looking(program: Program, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", {"concepts/a.md": node("A")})
    status, rehearsed = program.run("import", root, "--dry-run")
    assert (status, rehearsed["created"], rehearsed["dry_run"]) == (0, 1, True)
    status, _ = program.run("export", tmp_path / "out", "--dry-run")
    assert status == 0
    assert not (tmp_path / "home").exists()


def test_what_could_not_be_taken_is_told_and_is_the_exit_status(program: Program, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", {"concepts/a.md": node("A")})
    (root / "concepts/b.md").symlink_to("/etc/hostname")
    status, report = program.run("import", root)
    assert (status, report["created"], list(report["problems"])) == (1, 1, ["concepts/b.md"])
    status, error = program.run("import", tmp_path / "nowhere")
    assert (status, error["code"]) == (2, "CONFIG_ERROR")


@needs_golden
@pytest.mark.proves("okf-103")
def test_the_index_at_the_top_tells_its_version_once(program: Program, tmp_path: Path) -> None:
    program.run("import", write(tmp_path / "bundle", {"index.md": "# Mine\n", "concepts/a.md": node("A")}))
    program.run("export", tmp_path / "out")
    assert (tmp_path / "out" / "index.md").read_text() == '---\nokf_version: "0.1"\n---\n\n# Mine\n'
