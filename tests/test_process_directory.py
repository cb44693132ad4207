"""Local directories that belong to one process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memoree.process_directory import ProcessDirectory

HOLD = """
import sys, time
from pathlib import Path
from memoree.process_directory import ProcessDirectory
directory = ProcessDirectory(Path(sys.argv[1]))
(directory.new_subdirectory("tenant") / "file").write_text("x")
print(directory.path, flush=True)
sys.stdin.read()
"""


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_what_a_killed_process_left_is_swept_by_the_next_one(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        alive = ProcessDirectory(tmp_path)
        assert (theirs / "tenant" / "file").exists(), "a living process lost its files"
        process.send_signal(signal.SIGKILL)
        process.wait(10)

    later = ProcessDirectory(tmp_path)

    assert names(tmp_path) == {path.name + suffix for path in (alive.path, later.path) for suffix in ("", ".lock")}
    alive.remove()
    later.remove()
    assert names(tmp_path) == set()


def test_a_directory_that_cannot_be_removed_stays_known_to_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = ProcessDirectory(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(shutil, "rmtree", lambda *_, **__: None)
        directory.remove()
    assert names(tmp_path) == {directory.path.name, directory.path.name + ".lock"}

    ProcessDirectory(tmp_path).remove()

    assert names(tmp_path) == set()


def test_two_directories_of_one_process_are_two(tmp_path: Path) -> None:
    first, second = ProcessDirectory(tmp_path), ProcessDirectory(tmp_path)
    first.remove()

    assert second.path.exists()
    second.remove()


def test_a_directory_is_private_and_each_part_of_it_new(tmp_path: Path) -> None:
    directory = ProcessDirectory(tmp_path / "root")
    part = directory.new_subdirectory("tenant/epoch")

    assert [path.stat().st_mode & 0o777 for path in (directory.path.parent, directory.path, part)] == [0o700] * 3
    with pytest.raises(FileExistsError):
        directory.new_subdirectory("tenant/epoch")
    directory.remove()


def test_a_forked_process_is_refused_its_parents_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = ProcessDirectory(tmp_path)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        with pytest.raises(AssertionError, match="forked"):
            directory.new_subdirectory("tenant")
    directory.remove()
