"""What the processes of a stack cost, read from /proc (Linux)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024
LAUNCHER = "launcher.py --watch"
"""Children run under it; it holds a few megabytes and is not what is asked about."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory in MiB: all of it, and the part that is not a mapped file."""

    rss: float
    anonymous: float


def descendants(pid: int, command: str) -> list[int]:
    """Processes below `pid` whose command line holds `command`, launchers left out."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        waiting += below
        found += [child for child in below if command in (line := _command(child)) and LAUNCHER not in line]
    return found


def memory_of(pid: int) -> Memory:
    fields = dict(_status(pid))
    return Memory(fields["VmRSS"] / 1024, fields["RssAnon"] / 1024)


def busy_share(seconds: float) -> float:
    """The share of all processors that is busy, watched for that long: what else runs before a measurement."""
    busy_before, all_before = _processor_times()
    time.sleep(seconds)
    busy, all_ = _processor_times()
    return (busy - busy_before) / max(all_ - all_before, 1)


def _processor_times() -> tuple[int, int]:
    numbers = [int(number) for number in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    idle = numbers[3] + numbers[4]
    return sum(numbers[:8]) - idle, sum(numbers[:8])


def _parent(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it ended meanwhile
        return None


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _status(pid: int) -> Iterator[tuple[str, int]]:
    """Every size in kB that the kernel tells."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if value.endswith("kB"):
            yield name, int(value.removesuffix("kB"))
