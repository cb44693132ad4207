"""Files on the user's side: what goes into an artifact, and what comes out of one."""

from __future__ import annotations

import base64
import mimetypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from memoree import limits
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.ids import new_ulid
from memoree.media import json_string_bytes
from memoree.paths import open_regular_file

STDIN_NAME = "-"
STDIN_LABEL = "stdin"
TEXT_MEDIA_TYPE = "text/plain; charset=utf-8"
UNKNOWN_MEDIA_TYPE = "application/octet-stream"
MEDIA_TYPES = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
}
"""Names that the tables of some systems do not know: the same file has the same type everywhere."""


@dataclass(frozen=True, slots=True)
class Source:
    """What was read: where from, the wire form of the bytes, and the media type its name suggests."""

    label: str
    content: dict[str, str]
    media_type: str


def read_source(name: str) -> Source:
    """Read a file, or standard input for `-`.

    Raises `CONTENT_TOO_LARGE` over 8 MiB, before more than that is read, and `INVALID_REQUEST` for what is no file.
    """
    if name == STDIN_NAME:
        return Source(STDIN_LABEL, wire_content(_read_bounded(sys.stdin.buffer)), TEXT_MEDIA_TYPE)
    path, opened = open_source(name)
    with opened as file:
        if os.fstat(file.fileno()).st_size > limits.ARTIFACT_BYTES_MAX:
            raise _too_large()
        try:
            data = _read_bounded(file)
        except OSError as error:
            _unreadable(name, error)
    return Source(label_of(path), wire_content(data), media_type_of(path))


def open_source(name: str) -> tuple[Path, BinaryIO]:
    """A file, open for reading, and where it really is. Raises `INVALID_REQUEST` for what is no file."""
    try:
        path = Path(name).resolve(strict=True)
        return path, open_regular_file(path)
    except (OSError, RuntimeError, ValueError) as error:  # links that point at each other; a NUL in the name
        _unreadable(name, error)


def label_of(path: Path) -> str:
    """What a file is called where it is stored."""
    return os.fsencode(path).decode(errors="replace")


def media_type_of(path: Path) -> str:
    known = MEDIA_TYPES.get(path.suffix.lower())
    guessed, encoding = mimetypes.guess_type(path.name)
    return known or (guessed if guessed and not encoding else UNKNOWN_MEDIA_TYPE)


def wire_content(data: bytes) -> dict[str, str]:
    """As text when the bytes are UTF-8 and their JSON string has at most 12 MiB, else as base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and json_string_bytes(text, len(data)) <= limits.ENCODED_CONTENT_BYTES_MAX:
        return {"type": "text", "data": text}
    return {"type": "base64", "data": base64.b64encode(data).decode("ascii")}


def materialize(result: dict[str, Any], destination: Path, *, replace: bool) -> dict[str, Any]:
    """Write the content of a record to a file, whole or not at all; the record then names the file instead.

    Raises `INVALID_REQUEST` when the file exists and may not be replaced.
    """
    content = result.get("content")
    if not isinstance(content, dict):
        raise MemoreeError(Code.INTEGRITY_ERROR, "the answer carries no content")
    text = content["type"] == "text"
    data = content["data"].encode() if text else base64.b64decode(content["data"], validate=True)
    return written(result, data, destination, replace=replace)


def written(result: dict[str, Any], data: bytes, destination: Path, *, replace: bool) -> dict[str, Any]:
    """Write bytes that stand for the content of a result, as `materialize` does."""
    return materialized(result, lambda file: file.write(data), destination, replace=replace)


def materialized(
    result: dict[str, Any], write: Callable[[BinaryIO], object], destination: Path, *, replace: bool
) -> dict[str, Any]:
    """As `written`, for content that is written piece by piece."""
    path = Path(os.path.abspath(destination))  # noqa: PTH100 - a link is replaced, not followed
    _publish(path, write, replace=replace)
    shown_result = {name: value for name, value in result.items() if name != "content"}
    return {**shown_result, "materialized_path": label_of(path)}


def _publish(path: Path, write: Callable[[BinaryIO], object], *, replace: bool) -> None:
    """Through a temporary file in the same directory; without `replace` by a hard link, which never overwrites."""
    if not replace and os.path.lexists(path):
        raise _exists(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".memoree-{new_ulid()}.tmp")
    try:
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
        else:
            os.link(temporary, path)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        raise MemoreeError(Code.INTERNAL_ERROR, f"{path} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _unreadable(name: str, error: Exception) -> NoReturn:
    invalid(f"{shown(name)} cannot be read: {getattr(error, 'strerror', None) or error}")


def _read_bounded(file: BinaryIO) -> bytes:
    data = file.read(limits.ARTIFACT_BYTES_MAX + 1)
    if len(data) > limits.ARTIFACT_BYTES_MAX:
        raise _too_large()
    return data


def _too_large() -> MemoreeError:
    return MemoreeError(
        Code.CONTENT_TOO_LARGE,
        f"the content has more than {limits.ARTIFACT_BYTES_MAX} bytes, the limit of a request; "
        "`memoree artifact upload` sends more",
    )


def _exists(path: Path) -> MemoreeError:
    return MemoreeError(Code.INVALID_REQUEST, f"{path} exists; --force replaces it")
