"""Inboxes as files of a bundle, one for each agent (OKF contract §4.1): for bundles that no store keeps."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.okf import dates, inbox_text
from memoree.okf.detectors import labels
from memoree.okf.dialect import Dialect
from memoree.okf.ids import agent_name

FILE_BYTES_MAX = 64 * 1024 * 1024
LOCK_SUFFIX = ".lock"
LOCK_SECONDS_MAX = 30.0
"""A lock that is older was left behind."""
WAIT_SECONDS_MAX = 10.0
_POLL_SECONDS = 0.01
_HOLDER = "pid"
_HEAD = """---
okf_version: "0.1"
---

# Inbox — {agent}

Raw notes, for a curator to read; nothing here is part of the bundle yet.
"""


@dataclass(frozen=True, slots=True)
class Written:
    """`bytes_written` is the size of the whole file, as the reference program tells it."""

    agent: str
    file: str
    labels: Sequence[str]
    bytes_written: int


def appended(before: bytes | None, agent: str, entry: str) -> bytes:
    """An inbox with one more entry; what is there stays, byte for byte, but for line breaks at its end. `None` is an
    inbox that does not exist yet: it gets no `type`, so that it is no node of the bundle."""
    head = _HEAD.format(agent=agent).encode() if before is None else before
    return head.rstrip(b"\r\n") + b"\n\n" + entry.encode()


def append(
    root: Path,
    *,
    agent: str | None,
    title: str | None,
    content: str,
    at_ms: int,
    dialect: Dialect = Dialect.SERVICE,
) -> Written:
    """Write an entry into the inbox of an agent, whole or not at all, however many write at once.

    Raises `INVALID_REQUEST` for a blank content, a retryable `TRANSPORT_ERROR` where another program keeps the inbox
    locked, and `CONFIG_ERROR` for one that cannot be written or leads out of the bundle."""
    if not content.strip():
        invalid("content: must not be blank")
    name = agent_name(agent)
    scanned = content if dialect is Dialect.COMPAT else f"{title or ''}\n\n{content}"
    found = labels(scanned)
    text = content if found else content.strip()
    entry = inbox_text.entry(at=dates.iso(at_ms), title=title, text=text, labels=found, dialect=dialect)
    file = inbox_text.file_of(name)
    try:
        at = _place(root, file)
        with _locked(at):
            data = appended(_read(at), name, entry)
            if len(data) > FILE_BYTES_MAX:
                raise MemoreeError(
                    Code.CONTENT_TOO_LARGE, f"{file}: an inbox has at most {FILE_BYTES_MAX} bytes; curate it first"
                )
            _publish(at, data)
    except (OSError, UnicodeEncodeError) as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"{file} cannot be written: {error}") from error
    return Written(name, file, found, len(data))


def _place(root: Path, file: str) -> Path:
    """Where the inbox is. Raises `CONFIG_ERROR` where a link leads out of the bundle."""
    at = root / file
    at.parent.mkdir(exist_ok=True)
    if at.is_symlink() or not at.parent.resolve().is_relative_to(root.resolve()):
        raise MemoreeError(Code.CONFIG_ERROR, f"{shown(file)} is a link, and may lead out of the bundle")
    return at


def _read(at: Path) -> bytes | None:
    if not at.exists():
        return None
    if not at.is_file():
        raise MemoreeError(Code.CONFIG_ERROR, f"{shown(at.name)} is not a file")
    with at.open("rb") as opened:
        return opened.read(FILE_BYTES_MAX + 1)


def _publish(at: Path, data: bytes) -> None:
    """Nobody sees half of it; its name begins with a dot until it is whole, so that no walk takes it for a node."""
    descriptor, name = tempfile.mkstemp(dir=at.parent, prefix=f".{at.name}.")
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        Path(name).chmod(at.stat().st_mode & 0o777 if at.exists() else 0o644)
        Path(name).replace(at)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _locked(at: Path) -> Iterator[None]:
    """The inbox to oneself: a lock of the system between programs like this one, which ends with its holder, and inside
    it the directory by which the reference program locks."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    descriptor = os.open(at.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while not _taken(descriptor):
            _wait(at, end)
        lock = at.with_name(at.name + LOCK_SUFFIX)
        while not _made(lock):
            _wait(at, end)
        try:
            yield
        finally:
            shutil.rmtree(lock, ignore_errors=True)
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _made(lock: Path) -> bool:
    try:
        lock.mkdir()
    except FileExistsError:
        if _is_left_behind(lock):
            shutil.rmtree(lock, ignore_errors=True)
        return False
    (lock / _HOLDER).write_text(str(os.getpid()), encoding="utf-8")
    return True


def _is_left_behind(lock: Path) -> bool:
    """Too old, or of a process that is gone."""
    try:
        if time.time() - lock.stat().st_mtime > LOCK_SECONDS_MAX:
            return True
        os.kill(int((lock / _HOLDER).read_text(encoding="utf-8")), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):  # it has just been given back, or does not say whose it is
        return False
    return False


def _wait(at: Path, end: float) -> None:
    if time.monotonic() >= end:
        raise MemoreeError(
            Code.TRANSPORT_ERROR,
            f"{shown(at.name)} has been locked by another program for {WAIT_SECONDS_MAX:.0f} seconds",
            retry_after_seconds=1.0,
        )
    time.sleep(_POLL_SECONDS)
