"""Files that only this user may read: keys, tokens, configurations."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

FILE_MODE = 0o600


def write_private(path: Path, content: bytes, *, like: os.stat_result | None = None) -> None:
    """Replace a file in one durable step; nobody ever sees half of it, nor another mode than 0600, or than that of
    the file it shall be `like`, whose owner it then has too, if this user may give it away."""
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        if like is not None:
            _make_like(descriptor, like)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _make_like(descriptor: int, status: os.stat_result) -> None:
    with suppress(PermissionError):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
