"""One stack per data directory, and how others find it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from memoree.errors import Code, MemoreeError
from memoree.stack import instance
from memoree.stack.instance import LOCK_NAME, STATE_NAME, Instance, published_state, running_pid

HOLD = """
import sys
from pathlib import Path
from memoree.stack.instance import Instance
with Instance.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_stack_on_a_directory_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with (
        Instance.hold(tmp_path),
        pytest.raises(MemoreeError, match=f"process {os.getpid()}") as refused,
        Instance.hold(tmp_path),
    ):
        pass
    assert refused.value.code is Code.CONFIG_ERROR
    with Instance.hold(tmp_path):
        pass


def test_nothing_runs_on_a_directory_that_was_never_used_or_whose_stack_was_killed(tmp_path: Path) -> None:
    assert running_pid(tmp_path / "never") is None
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        assert running_pid(tmp_path) == process.pid
        process.kill()
        process.wait(10)

    assert running_pid(tmp_path) is None


def test_looking_at_a_stack_never_keeps_it_from_starting(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).touch()
    looker = os.open(tmp_path / LOCK_NAME, os.O_RDWR)
    fcntl.flock(looker, fcntl.LOCK_SH)
    assert running_pid(tmp_path) is None, "two lookers take each other for a stack"
    release = threading.Timer(0.1, os.close, [looker])
    release.start()

    with Instance.hold(tmp_path):
        assert running_pid(tmp_path) == os.getpid()
    release.join()


def test_what_is_published_is_private_whole_and_gone_with_the_next_stack(tmp_path: Path) -> None:
    with Instance.hold(tmp_path) as held:
        assert published_state(tmp_path) is None
        held.publish({"url": "http://127.0.0.1:1"})
        held.publish({"url": "http://127.0.0.1:2"})
        assert published_state(tmp_path) == {"url": "http://127.0.0.1:2"}
        assert (tmp_path / STATE_NAME).stat().st_mode & 0o777 == 0o600
    with Instance.hold(tmp_path):
        assert published_state(tmp_path) is None, "of the stack before"


@pytest.mark.fault_class(43)
def test_garbage_in_the_files_of_an_instance_stops_nobody(tmp_path: Path) -> None:
    with Instance.hold(tmp_path) as held:
        held.publish({"url": "x"})
        for name in (LOCK_NAME, STATE_NAME):
            with (tmp_path / name).open("ab") as file:
                file.write(b"\xff garbage")
        assert running_pid(tmp_path) == os.getpid()
        assert published_state(tmp_path) is None
    (tmp_path / LOCK_NAME).write_bytes(b"\xffgarbage" * 100)
    with Instance.hold(tmp_path):
        assert running_pid(tmp_path) == os.getpid()


def test_a_directory_open_to_others_is_closed_when_it_is_a_stacks_and_refused_when_it_is_not(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir(mode=0o755)
    with Instance.hold(ours):
        assert ours.stat().st_mode & 0o777 == 0o700
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    (theirs / "letter").write_text("not a stack's")
    with pytest.raises(MemoreeError, match="holds other things") as refused, Instance.hold(theirs):
        pass
    assert refused.value.code is Code.CONFIG_ERROR
    assert theirs.stat().st_mode & 0o777 == 0o755


def test_a_lock_without_a_readable_owner_is_still_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "PROBE_SECONDS_MAX", 0.05)
    with Instance.hold(tmp_path):
        (tmp_path / LOCK_NAME).write_bytes(b"")
        with pytest.raises(MemoreeError, match="unknown"), Instance.hold(tmp_path):
            pass
