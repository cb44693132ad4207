"""Files of clients that name MCP servers: one entry put in or taken out, every other byte as it was."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memoree.skills import blocks
from memoree.skills.clients import COMMAND, SERVER, Servers

INDENT = "  "
_BOM = "\ufeff"
_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder()


class Unusable(ValueError):
    """The file is not what its client would read, or has another server by our name."""


@dataclass(frozen=True, slots=True)
class _Member:
    """Where a member of a JSON object stands: from its name to the end of its value."""

    name: str
    start: int
    value_start: int
    end: int


def with_server(data: bytes, servers: Servers, entry: dict[str, Any], *, replace: bool) -> bytes:
    """The file with our server. An entry that is there and starts this program is left as it is unless it is to be
    replaced. Raises `Unusable`."""
    if servers.is_toml:
        return _with_table(data, servers, entry, replace=replace)
    bom, text = _read(data)
    if not text.strip():
        return f"{bom}{json.dumps({servers.member: {SERVER: entry}}, indent=2)}\n".encode()
    found = _entry_of(text, servers)
    if found is not None:
        _require_ours(found)
        if found == entry or not replace:
            return data
        text = _without(text, [servers.member, SERVER])
    line_end = "\r\n" if "\r\n" in text else "\n"
    written = json.dumps(entry, indent=2)
    top = list(_members(text, _start(text)))
    holder = next((member for member in top if member.name == servers.member), None)
    if holder is None:
        written = json.dumps({SERVER: entry}, indent=2)
        text = _with_member(text, _start(text), servers.member, written, 1, line_end)
    else:
        text = _with_member(text, holder.value_start, SERVER, written, 2, line_end)
    return f"{bom}{text}".encode()


def without_server(data: bytes, servers: Servers) -> bytes:
    """The file without our server; empty where nothing else was in it. Raises `Unusable`."""
    if servers.is_toml:
        return blocks.removed(data) if blocks.find(data) is not None else data
    bom, text = _read(data)
    if not text.strip() or (found := _entry_of(text, servers)) is None:
        return data
    _require_ours(found)
    text = _without(text, [servers.member, SERVER])
    left = json.loads(text)
    if not left[servers.member]:
        text = _without(text, [servers.member])
        left = json.loads(text)
    return f"{bom}{text}".encode() if left else b""


# --- JSON -------------------------------------------------------------------------------------------------------------


def _read(data: bytes) -> tuple[str, str]:
    """The byte order mark, if any, and the text."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Unusable(f"it is not UTF-8: {error.reason}") from error
    return (_BOM, text[1:]) if text.startswith(_BOM) else ("", text)


def _entry_of(text: str, servers: Servers) -> Any:
    """What stands under our name; `None` for nothing."""
    try:
        document = json.loads(text, object_pairs_hook=_once_each)
    except (json.JSONDecodeError, RecursionError) as error:
        raise Unusable(f"it is not JSON: {error}") from error
    found = document.get(servers.member, {}) if isinstance(document, dict) else None
    if not isinstance(found, dict):
        raise Unusable(f"it is not an object with an object {servers.member!r}")
    return found.get(SERVER)


def _once_each(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise Unusable("a member of it stands there twice")
    return members


def _require_ours(found: object) -> None:
    """Raises `Unusable` for an entry that starts something else."""
    command = found.get("command") if isinstance(found, dict) else None
    if not isinstance(command, str) or command.replace("\\", "/").rpartition("/")[2] != COMMAND:
        raise Unusable(f"it has another server by the name {SERVER!r}")


def _start(text: str) -> int:
    return _skip(text, 0)


def _members(text: str, at: int) -> Iterator[_Member]:
    """Of the object that begins there; the text is known to be JSON."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        start = at
        name, at = _DECODER.raw_decode(text, at)
        value_start = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, value_start)
        yield _Member(name, start, value_start, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _with_member(text: str, at: int, name: str, written: str, deep: int, line_end: str) -> str:
    """With a member more at the end of the object that begins there; `written` is its value, in lines that are indented
    as if it stood at the margin."""
    members = list(_members(text, at))
    margin = line_end + INDENT * deep
    value = written.replace("\n", margin)
    if members:
        end = members[-1].end
        return f"{text[:end]},{margin}{json.dumps(name)}: {value}{text[end:]}"
    closing = _skip(text, at + 1)
    return f"{text[: at + 1]}{margin}{json.dumps(name)}: {value}{line_end}{INDENT * (deep - 1)}{text[closing:]}"


def _without(text: str, names: Sequence[str]) -> str:
    """Without the member that the names lead to, and the comma that kept it apart."""
    at = _start(text)
    for name in names[:-1]:
        at = next(member.value_start for member in _members(text, at) if member.name == name)
    members = list(_members(text, at))
    place = next(number for number, member in enumerate(members) if member.name == names[-1])
    if place:
        return text[: members[place - 1].end] + text[members[place].end :]
    if len(members) > 1:
        return text[: members[0].start] + text[members[1].start :]
    return text[: at + 1] + text[_skip(text, members[0].end) :]


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


# --- TOML -------------------------------------------------------------------------------------------------------------


def _with_table(data: bytes, servers: Servers, entry: dict[str, Any], *, replace: bool) -> bytes:
    others = _toml(blocks.removed(data)).get(servers.member, {})
    if not isinstance(others, dict):
        raise Unusable(f"{servers.member!r} in it is no table")
    if SERVER in others:
        _require_ours(others[SERVER])
        return data
    if blocks.find(data) is not None and not replace:
        return data
    lines = [f"[{servers.member}.{SERVER}]", *(f"{name} = {json.dumps(value)}" for name, value in entry.items())]
    written = blocks.put(data, "\n".join(lines), blocks.TOML)
    _toml(written)
    return written


def _toml(data: bytes) -> dict[str, Any]:
    _, text = _read(data)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unusable(f"it is not TOML: {error}") from error
