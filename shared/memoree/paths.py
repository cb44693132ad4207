"""Where Memoree keeps its files: one relocatable root, one override per path, or the platform's directories.

Looking a path up creates nothing; `prepare_data_dir` is called by whoever is about to open the store.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from memoree.errors import Code, MemoreeError

APP_NAME = "memoree"
DATA_DIR_MODE = 0o700
DATA_DIR_ENTRIES = frozenset(
    {
        "blobs",
        "ingest.sqlite3",
        "ingest.sqlite3-journal",
        "ingest.sqlite3-shm",
        "ingest.sqlite3-wal",
        "ingest.sqlite3-wake",
        "integration-backups",
        "manifest.jsonl",
        "memoree.sqlite3",
        "memoree.sqlite3-journal",
        "memoree.sqlite3-shm",
        "memoree.sqlite3-wal",
        "metrics",
        "migration-backups",
        "objects",
        "pending-checkpoints",
        "project-index",
        "project-settings",
        "queue.sqlite3",
        "queue.sqlite3-shm",
        "queue.sqlite3-wal",
        "run",
        "stack",
        "writer.lock",
    }
)
"""What a data directory of ours holds; a directory with anything else in it is not tightened, it may be shared."""
MIGRATION_COPY_PREFIX = "memoree.sqlite3.before-schema-"
"""Of the copies that are kept before a migration, one per schema version."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Absolute paths; none of them need exist."""

    config_file: Path
    data_dir: Path
    runtime_dir: Path
    socket: Path


def discover(environ: Mapping[str, str] = os.environ) -> Paths:
    """The paths of this environment. An empty variable counts as unset; a relative one is relative to the cwd."""
    home = _path(environ, "MEMOREE_HOME")
    data_dir = _path(environ, "MEMOREE_DATA_DIR") or (home / "data" if home else _platform_data_dir())
    runtime_dir = _path(environ, "MEMOREE_RUNTIME_DIR") or _runtime_dir(environ, home, data_dir)
    return Paths(
        config_file=_path(environ, "MEMOREE_CONFIG") or (home or _platform_config_dir()) / "config.toml",
        data_dir=data_dir,
        runtime_dir=runtime_dir,
        socket=_path(environ, "MEMOREE_SOCKET") or runtime_dir / "memoree.sock",
    )


def prepare_data_dir(data_dir: Path) -> None:
    """Make the directory exist with mode 0700.

    Raises `CONFIG_ERROR` when it is open to others and holds files that are not ours: closing it could lock
    somebody out, and leaving it open would show them the memory.
    """
    try:
        found = data_dir.stat()
    except FileNotFoundError:
        try:
            data_dir.mkdir(mode=DATA_DIR_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise MemoreeError(Code.CONFIG_ERROR, f"the data directory {data_dir} cannot be made: {error}") from error
        return
    except (OSError, ValueError) as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"the data directory {data_dir} cannot be used: {error}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise MemoreeError(Code.CONFIG_ERROR, f"the data directory {data_dir} is not a directory")
    if stat.S_IMODE(found.st_mode) & ~DATA_DIR_MODE == 0:
        return
    if strangers := sorted(entry.name for entry in data_dir.iterdir() if not _is_ours(entry.name)):
        raise MemoreeError(
            Code.CONFIG_ERROR,
            f"the data directory {data_dir} is open to other users and holds {strangers[0]!r}, which is not ours; "
            "choose an empty directory, or set its mode to 0700",
        )
    try:
        data_dir.chmod(DATA_DIR_MODE)
    except OSError as error:
        raise MemoreeError(
            Code.CONFIG_ERROR, f"the data directory {data_dir} is open to other users: {error}"
        ) from error


def open_regular_file(path: Path) -> BinaryIO:
    """Open for reading, without waiting for the other end of a pipe. Raises `OSError`, also for what is no file."""
    file: BinaryIO = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - Path.open() has no opener
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "not a regular file")


def _is_ours(name: str) -> bool:
    return name in DATA_DIR_ENTRIES or name.startswith(MIGRATION_COPY_PREFIX)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _runtime_dir(environ: Mapping[str, str], home: Path | None, data_dir: Path) -> Path:
    if home is not None:
        return home / "run"
    session = _path(environ, "XDG_RUNTIME_DIR")
    return session / APP_NAME if session is not None else data_dir / "run"


def _platform_data_dir() -> Path:
    import platformdirs  # only needed without MEMOREE_HOME, and this module is on the way of every command

    return platformdirs.user_data_path(APP_NAME, appauthor=False)


def _platform_config_dir() -> Path:
    import platformdirs

    return platformdirs.user_config_path(APP_NAME, appauthor=False)


def _path(environ: Mapping[str, str], variable: str) -> Path | None:
    value = environ.get(variable)
    return Path(os.path.abspath(value)) if value else None  # noqa: PTH100 - Path.resolve() would follow links
