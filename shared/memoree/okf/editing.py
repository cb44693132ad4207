"""Changes to single fields of a node's file that leave every other byte as it is (OKF contract §4.4 to §4.6).

A file that cannot be changed this way without another field being read differently afterwards is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from memoree.errors import invalid, shown
from memoree.okf import dates, frontmatter, yaml_fields
from memoree.okf.dialect import Dialect
from memoree.okf.frontmatter import Entry, Fields
from memoree.okf.ids import path_of

Change: TypeAlias = Entry | None
"""A new value; `None` takes the field away."""

REFLECTIONS = "Reflections"
VALUE_CHARS_MAX = 4096
REFLECTION_CHARS_MAX = 16 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z")
_ENDING = re.compile(rb"(?:\r\n|\n|\r)\Z")
_FENCE_LINE = re.compile(rb"---[ \t]*(?:\r\n|\n|\r)?")
_CONTINUED = re.compile(rb"[ \t]|-(?:[ \t\r\n]|\Z)")
_HEADING = re.compile(rb"(#{1,6})[ \t]+(.*?)[ \t#]*(?:\r\n|\n|\r)?")
_CODE_FENCE = re.compile(rb" {0,3}(```+|~~~+)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def with_fields(data: bytes, changes: Mapping[str, Change]) -> bytes:
    """The file with these fields of its front matter set: in place where they are, else as its last lines. A line that
    is replaced loses its comment; of a field that is written twice the last one, which counts, is replaced.

    Raises `INVALID_REQUEST` for a file without readable front matter and for values of more than one line."""
    before = frontmatter.read(frontmatter.normalised(data), Dialect.SERVICE)
    if before.fields is None or before.problem is not None:
        invalid(f"the file cannot be changed: {before.problem or 'it has no front matter'}")
    lines = _lines(data)
    end = next(at for at, line in enumerate(lines) if at and _FENCE_LINE.fullmatch(line))
    ending = _ending(lines[0])
    expected: Fields = dict(before.fields)
    for name, value in changes.items():
        start, stop = _span(lines, name, end)
        expected.pop(name, None)
        written: list[bytes] = []
        if value is not None:
            expected[name] = value
            own_ending = _ending(lines[start]) if start < stop else ending
            written = [line(name, value).encode() + own_ending]
        lines[start:stop] = written
        end += len(written) - (stop - start)
    changed = b"".join(lines)
    after = frontmatter.read(frontmatter.normalised(changed), Dialect.SERVICE)
    if after.problem is not None or after.fields != expected or after.body != before.body:
        invalid(
            f"the front matter is written in a way that {', '.join(changes)} cannot be set in; edit the file by hand"
        )
    return changed


def deprecated(data: bytes, at_ms: int) -> bytes:
    """Forgotten softly, as of that instant; once more only renews the instant."""
    return with_fields(data, {"deprecated": "true", "deprecated_on": dates.iso(at_ms)})


def superseded_by(data: bytes, node_id: str) -> bytes:
    """Merged into that node."""
    return with_fields(data, {"superseded_by": path_of(node_id)})


def with_status(data: bytes, status: str, blocked_reason: str | None = None) -> bytes:
    """In that status; a reason stays only as long as the node is blocked by it."""
    return with_fields(data, {"status": status, "blocked_reason": blocked_reason})


def with_reflection(data: bytes, *, on: str, by: str, text: str) -> bytes:
    """The file with one more bullet, dated and attributed, at the end of its section of reflections; the section is
    made where there is none. Nothing that is there changes.

    Raises `INVALID_REQUEST` for a blank or too long text."""
    if not text.strip():
        invalid("a reflection must not be blank")
    if len(text) > REFLECTION_CHARS_MAX:
        invalid(f"a reflection must have at most {REFLECTION_CHARS_MAX} characters, got {len(text)}")
    lines = _lines(data)
    ending = _ending(lines[0]) if lines else b"\n"
    bullet = _bullet(f"{on} ({by}): {text.strip()}", ending)
    section = _section(lines, _body_start(lines))
    if section is None:
        head = b"".join(lines)
        heading = f"## {REFLECTIONS}".encode() + ending + ending
        return head + _gap(lines, ending) + heading + bullet
    start, stop = section
    last = next((at for at in range(stop - 1, start, -1) if lines[at].strip()), start)
    unfinished = b"" if _ENDING.search(lines[last]) else ending
    blank = ending if last == start else b""
    return b"".join(lines[: last + 1]) + unfinished + blank + bullet + b"".join(lines[last + 1 :])


def line(name: str, value: Entry) -> str:
    """A field as it is written, without a line's end. Raises `INVALID_REQUEST` for a value of more than one line."""
    for text in [value] if isinstance(value, str) else value:
        if _CONTROL.search(text):
            invalid(f"{name}: must be one line without control characters, got {shown(text)}")
        if len(text) > VALUE_CHARS_MAX:
            invalid(f"{name}: must have at most {VALUE_CHARS_MAX} characters, got {len(text)}")
    if isinstance(value, str):
        return f"{name}: {scalar(value)}".rstrip()
    return f"{name}: [{', '.join(map(_item, value))}]"


def scalar(value: str) -> str:
    """A text as the value of a field: bare where YAML and the reference program read it back, else in quotes."""
    quoted = "'" + value.replace("'", "''") + "'"
    escaped = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    candidates = (value, f'"{value}"', f"'{value}'", quoted, escaped)
    readable = [each for each in candidates if _reads_as(each, value)]
    portable = (each for each in readable if frontmatter.parse_lines(f"k: {each}") == {"k": value})
    return next(portable, readable[0] if readable else escaped)


def _item(text: str) -> str:
    """As a member of a list, where commas and brackets mean something."""
    bare = re.fullmatch(r"[\w/][\w/. -]*(?<! )", text)
    return (
        text if bare and _reads_as(f"[{text}]", [text]) else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )


def _reads_as(yaml_text: str, value: Entry) -> bool:
    try:
        return yaml_fields.parse_yaml(f"k: {yaml_text}\n") == {"k": value}
    except ValueError:
        return False


def _span(lines: Sequence[bytes], name: str, end: int) -> tuple[int, int]:
    """The lines of a field at the top, and of what is indented below it; an empty span before the end without it."""
    key = re.compile(
        rf"(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')[ \t]*:(?=[ \t\r\n]|\Z)".encode()
    )
    compact = f"{name}:".encode()  # the line dialect needs no space after the colon
    found = [at for at in range(1, end) if key.match(lines[at]) or lines[at].startswith(compact)]
    if not found:
        return end, end
    start = found[-1]
    stop = start + 1
    for at in range(start + 1, end):
        if _CONTINUED.match(lines[at]) and lines[at].strip():
            stop = at + 1
        elif lines[at].strip():
            break
    return start, stop


def _body_start(lines: Sequence[bytes]) -> int:
    if not lines or not _FENCE_LINE.fullmatch(lines[0].removeprefix(_BYTE_ORDER_MARK)):
        return 0
    return next((at + 1 for at, line in enumerate(lines) if at and _FENCE_LINE.fullmatch(line)), 0)


def _section(lines: Sequence[bytes], start: int) -> tuple[int, int] | None:
    """The lines of the section of reflections, its heading first; what stands in a code block is no heading."""
    fence: bytes | None = None
    found: int | None = None
    for at in range(start, len(lines)):
        if (mark := _CODE_FENCE.match(lines[at])) is not None:
            opened = fence is None
            if opened:
                fence = mark[1]
            elif fence is not None and mark[1].startswith(fence):
                fence = None
            continue
        heading = _HEADING.fullmatch(lines[at]) if fence is None else None
        if heading is None or len(heading[1]) > len(b"##"):
            continue
        if found is not None:
            return found, at
        if len(heading[1]) == len(b"##") and heading[2].strip().lower() == REFLECTIONS.lower().encode():
            found = at
    return None if found is None else (found, len(lines))


def _bullet(text: str, ending: bytes) -> bytes:
    """Further lines are indented into it, and a code block that it opens ends in it."""
    written_lines = re.split(r"\r\n|\n|\r", text)
    if text.count("```") % 2:
        written_lines.append("```")
    indented = (f"  {line}".rstrip() for line in written_lines[1:])
    return b"".join(line.encode(errors="replace") + ending for line in (f"- {written_lines[0].rstrip()}", *indented))


def _gap(lines: Sequence[bytes], ending: bytes) -> bytes:
    """What must follow the last line for a blank line to stand before the next."""
    if not lines:
        return b""
    unfinished = b"" if _ENDING.search(lines[-1]) else ending
    return unfinished + (ending if lines[-1].strip() else b"")


def _lines(data: bytes) -> list[bytes]:
    return _LINE.findall(data)


def _ending(line: bytes) -> bytes:
    match = _ENDING.search(line)
    return match[0] if match else b"\n"
