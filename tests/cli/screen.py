"""A terminal that a command believes in."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def on_terminal(
    command: Sequence[str | Path], *, cwd: Path, environment: Mapping[str, str], columns: int = 120
) -> tuple[int, str]:
    """Exit status and output of a command whose standard output and error are a terminal, with `\\n` for line ends."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**environment, "TERM": "dumb", "COLUMNS": str(columns)},
    )
    os.close(theirs)
    output = bytearray()
    while chunk := _read(ours):
        output += chunk
    os.close(ours)
    return process.wait(60), output.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the last writer has gone
        return b""
