"""Runs one program so that it cannot outlive the process that asked for it, whatever ends that process.

    python -m memoree.replication.launcher --watch FD -- PROGRAM ARGUMENT…

The owner keeps the writing end of a pipe and passes the reading end as FD. However the owner ends, by
SIGKILL too, the kernel closes its end; the launcher sees end-of-file and kills its whole process group,
itself included. `PR_SET_PDEATHSIG` alone would not do: it fires when the *thread* that started a child ends.

The launcher leads the process group its child runs in: `os.killpg(launcher_pid, SIGKILL)` ends both at once.
SIGTERM, SIGINT and SIGHUP are passed on to the child. The exit status is the child's, 128 + n if signal n
ended it, and 127 if the program could not be started.

One runs beside every child, so it imports nothing beyond the interpreter's own small modules. An owner that
forks without exec hands its end of the pipe to the fork, and the child lives until both are gone.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

EXIT_NOT_STARTED = 127
EXIT_USAGE = 2
EXIT_SIGNAL_BASE = 128

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_PR_SET_PDEATHSIG = 1
_WAKE_BYTES_MAX = 256


def command_line(watch: int, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` under a launcher watching the descriptor `watch`.

    Start it with `pass_fds=[watch]` and `process_group=0`. It runs this file by path, isolated from the
    environment and without site packages, so that nothing on a path can keep it from starting.
    """
    return [sys.executable, "-I", "-S", __file__, "--watch", str(watch), "--", *argv]


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["--watch", descriptor, "--", *argv] if descriptor.isdecimal() and argv:
            watch = int(descriptor)
        case _:
            sys.stderr.write("usage: launcher --watch FD -- PROGRAM [ARGUMENT…]\n")
            return EXIT_USAGE
    os.set_inheritable(watch, False)
    _lead_a_process_group()
    wake = _wake_on_signals()
    return _watch(watch, wake, _start(argv))


def _lead_a_process_group() -> None:
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)


def _wake_on_signals() -> int:
    """A descriptor on which every signal of interest appears as one byte, its number."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGCHLD, *_FORWARDED):
        signal.signal(number, lambda _number, _frame: None)
    return reading


def _start(argv: Sequence[str]) -> int:
    launcher = os.getpid()
    child = os.fork()
    if child == 0:
        _become(argv, launcher)
    return child


def _become(argv: Sequence[str], launcher: int) -> NoReturn:
    """In the fork: undo what the launcher changed, then be the program. Never returns to the caller."""
    try:
        signal.set_wakeup_fd(-1)
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        _die_with(launcher)
        os.execvp(argv[0], list(argv))  # noqa: S606 - the owner's fixed argument list, as in any Popen
    except OSError as error:
        os.write(sys.stderr.fileno(), f"cannot start {argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(EXIT_NOT_STARTED)


def _die_with(launcher: int) -> None:
    """On Linux, end with a launcher that was itself killed; with its one thread the signal is sound."""
    if sys.platform != "linux":
        return
    from ctypes import CDLL

    CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:
        os._exit(EXIT_NOT_STARTED)


def _watch(watch: int, wake: int, child: int) -> int:
    """Until the child ends, returning its exit status; or until the owner does, not returning at all."""
    while True:
        ready, _, _ = select.select([watch, wake], [], [])
        if wake in ready:
            for number in os.read(wake, _WAKE_BYTES_MAX):
                if number != signal.SIGCHLD:
                    os.kill(child, number)
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return _exit_status(status)
        if watch in ready and not os.read(watch, 1):
            os.killpg(0, signal.SIGKILL)


def _exit_status(wait_status: int) -> int:
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else EXIT_SIGNAL_BASE - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
