"""The commands `up`, `down` and `status`: exit statuses and what they print."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import orjson

from memoree.clock import utc_now
from memoree.errors import Code, MemoreeError
from memoree.jobs.status import read_status
from memoree.stack.instance import make_private, published_state, running_pid
from memoree.stack.leaving import leave
from memoree.stack.options import UpOptions
from memoree.stack.supervisor import Supervisor

DETACH_SECONDS_MAX = 60.0
DOWN_SECONDS_MAX = 15.0
POLL_SECONDS = 0.05
STATUS_TIMEOUT_SECONDS = 5.0
LINES_TOLD_MAX = 5


def up(options: UpOptions, command_line: list[str]) -> int:
    """Run the stack until a signal, or start it detached: `command_line` is then what to run in the background.
    Prints one JSON line with the URLs on stdout, progress on stderr. After a stop in the foreground the process ends
    here. Raises `CONFIG_ERROR`."""
    if not options.detach:
        asyncio.run(Supervisor(options, _say, _print).run())
        leave(0)
    return _up_detached(options.data_dir, command_line)


def down(data_dir: Path) -> int:
    """Stop a running stack and wait until it is gone. Raises `CONFIG_ERROR` when it does not end."""
    pid = running_pid(data_dir)
    if pid is None:
        _print({"running": False, "stopped": False})
        return 0
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + DOWN_SECONDS_MAX
    while running_pid(data_dir) == pid:
        if time.monotonic() > deadline:
            raise MemoreeError(Code.CONFIG_ERROR, f"the stack (process {pid}) did not stop; see its log")
        time.sleep(POLL_SECONDS)
    _print({"running": False, "stopped": True})
    return 0


def status(data_dir: Path) -> int:
    """Print what runs on a directory and whether it is ready; exit status 0 only if it is."""
    pid = running_pid(data_dir)
    if pid is None:
        _print({"running": False})
        return 1
    state = published_state(data_dir)
    if state is None:
        _print({"running": True, "ready": False, "pid": pid})
        return 1
    try:
        answer = httpx.get(f"{state['url']}/readyz", timeout=STATUS_TIMEOUT_SECONDS, trust_env=False)
        ready, report = answer.status_code == httpx.codes.OK, answer.json()
    except (httpx.HTTPError, ValueError) as error:
        ready, report = False, {"error": str(error)}
    jobs = read_status(Path(state["runtime_dir"]), utc_now())
    _print({"running": True, "ready": ready, **state, "readiness": report, "jobs": jobs})
    return 0 if ready else 1


def _up_detached(data_dir: Path, command_line: list[str]) -> int:
    """The stack as a process of its own session; its progress goes to `up.log` in the data directory."""
    if (pid := running_pid(data_dir)) is not None:
        raise MemoreeError(Code.CONFIG_ERROR, f"a stack is running on {data_dir} already (process {pid})")
    make_private(data_dir)
    log_path = data_dir / "up.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command_line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + DETACH_SECONDS_MAX
    while (state := published_state(data_dir)) is None or running_pid(data_dir) != process.pid:
        if process.poll() is not None or time.monotonic() > deadline:
            process.terminate()
            raise _reason_not_to_start(log_path)
        time.sleep(POLL_SECONDS)
    _print(state)
    return 0


def _reason_not_to_start(log_path: Path) -> MemoreeError:
    """The failure that the stack's process printed last, else the last lines of its log."""
    lines = log_path.read_text(errors="replace").splitlines()[-LINES_TOLD_MAX:]
    with contextlib.suppress(IndexError, KeyError, TypeError, ValueError):
        return MemoreeError.from_wire(orjson.loads(lines[-1])["error"])
    return MemoreeError(Code.CONFIG_ERROR, "the stack did not start:\n" + "\n".join(lines))


def _print(document: Mapping[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()


def _say(line: str) -> None:
    print(f"memoree up: {line}", file=sys.stderr, flush=True)  # noqa: T201 - progress for a person
