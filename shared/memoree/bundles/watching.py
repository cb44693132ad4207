"""A directory that is imported again whenever it changes: by names, sizes and times, so that a look costs no reading
(OKF contract, assertion 79)."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from memoree.bundles.sync import Report, Wishes, import_bundle
from memoree.client.batches import Door
from memoree.errors import MemoreeError
from memoree.okf.bundle import FOLDERS_DEEP_MAX, LEDGER_PATH, SKIPPED, Tiers
from memoree.okf.ids import SUFFIX

SETTLED_NANOSECONDS = 2_000_000_000
"""A file that changed this short a time before it was read may change again without its time saying so."""
PAUSE_SECONDS_MAX = 60.0
"""Between two tries while the store does not answer."""


def fingerprint(root: Path, tiers: Tiers) -> tuple[str, int]:
    """What tells a changed directory from an unchanged one, and the newest time in it, in nanoseconds. What cannot be
    looked at is part of it, too."""
    digest = hashlib.sha256()
    newest = 0
    for told, changed in (*_entries(root, "", tiers.hidden_folders, 0), *_of_file(root / LEDGER_PATH)):
        digest.update(told.encode(errors="surrogateescape") + b"\n")
        newest = max(newest, changed)
    return digest.hexdigest(), newest


def is_settled(newest_ns: int, read_ns: int) -> bool:
    """Whether what was read at that time could not change any more without its times saying so."""
    return newest_ns < read_ns - SETTLED_NANOSECONDS


def watch(
    root: Path,
    door: Door,
    wishes: Wishes,
    *,
    interval_seconds: float,
    tell: Callable[[Report], None],
    warn: Callable[[str], None],
    stop: threading.Event | None = None,
) -> None:
    """Import now and after every change, until `stop`. Raises what the first import raises; later failures are told,
    and tried again."""
    stopping = stop or threading.Event()
    tiers = Tiers(mirror=wishes.include_mirror)
    imported: str | None = None
    is_first, pause = True, interval_seconds
    while not stopping.is_set():
        found, newest = fingerprint(root, tiers)
        if found != imported:
            began = time.time_ns()
            try:
                tell(import_bundle(root, door, wishes))
                imported, pause = found if is_settled(newest, began) else None, interval_seconds
            except MemoreeError as error:
                if is_first:
                    raise
                warn(f"not imported: {error.message}")
                pause = min(pause * 2, PAUSE_SECONDS_MAX)
            is_first = False
        stopping.wait(pause)


def _entries(folder: Path, prefix: str, hidden: frozenset[str], deep: int) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        yield f"{prefix} {error.strerror}", 0
        return
    for entry in entries:
        name = entry.name
        if name.startswith((".", "_")) or name in SKIPPED or (not prefix and name in hidden):
            continue
        if entry.is_dir(follow_symlinks=False):
            if deep < FOLDERS_DEEP_MAX:
                yield from _entries(Path(entry.path), f"{prefix}{name}/", hidden, deep + 1)
        elif name.endswith(SUFFIX):
            yield from _of_file(Path(entry.path), prefix + name)


def _of_file(path: Path, told: str = LEDGER_PATH) -> Iterator[tuple[str, int]]:
    try:
        found = path.stat()
    except OSError:
        return
    yield f"{told} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}", found.st_mtime_ns
