"""A block of ours in a file of somebody else: put in, replaced and taken out without touching another byte."""

from __future__ import annotations

from dataclasses import dataclass

BOM = b"\xef\xbb\xbf"
_NAME = b"memoree"


class BrokenBlock(ValueError):
    """The marks of the block do not stand once each and in order."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The lines around a block, as comments of the file's language."""

    begin: bytes
    end: bytes


MARKDOWN = Marks(
    b"<!-- "
    + _NAME
    + b":begin - written by `memoree skill install`, which replaces what stands up to the end mark -->",
    b"<!-- " + _NAME + b":end -->",
)
TOML = Marks(
    b"# " + _NAME + b":begin - written by `memoree skill install`, which replaces what stands up to the end mark",
    b"# " + _NAME + b":end",
)
_BEGIN, _END = _NAME + b":begin", _NAME + b":end"


def put(data: bytes, text: str, marks: Marks) -> bytes:
    """The file with the block: where it is already, else at the end, after a blank line. Raises `BrokenBlock`."""
    at = find(data)
    has_returns = (
        b"\r\n" in data or data.endswith(b"\r") if at is None else data[at].partition(b"\n")[0].endswith(b"\r")
    )
    line_end = b"\r\n" if has_returns else b"\n"
    block = line_end.join([marks.begin, *text.strip("\n").encode().split(b"\n"), marks.end])
    if at is not None:
        return data[: at.start] + block + data[at.stop :]
    if not data.removeprefix(BOM):
        return data + block + line_end
    if data.endswith(b"\n"):
        return data + line_end + block + line_end
    return data + line_end * 2 + block  # no line end after it tells `removed` that there was none before


def removed(data: bytes) -> bytes:
    """The file without the block, as it was before `put`. Raises `BrokenBlock`."""
    at = find(data)
    if at is None:
        return data
    before, after = data[: at.start], data[at.stop :]
    if not after:
        return _without_line_end(_without_line_end(before))
    if after in (b"\n", b"\r\n") or before.endswith((b"\n\n", b"\r\n\r\n")):
        before = _without_line_end(before)
    return before + after.removeprefix(b"\r\n" if after.startswith(b"\r\n") else b"\n")


def find(data: bytes) -> slice | None:
    """The bytes of the block, its marks included and no line end around it."""
    counts = data.count(_BEGIN), data.count(_END)
    if counts == (0, 0):
        return None
    begin, end = data.find(_BEGIN), data.find(_END)
    if counts != (1, 1) or end < begin:
        raise BrokenBlock("the marks of memoree's block do not stand once each and in order")
    start = data.rfind(b"\n", 0, begin) + 1
    if not start and data.startswith(BOM):
        start = len(BOM)
    stop = data.find(b"\n", end)
    stop = len(data) if stop == -1 else stop - data[:stop].endswith(b"\r")
    return slice(start, stop)


def _without_line_end(data: bytes) -> bytes:
    return data.removesuffix(b"\r\n") if data.endswith(b"\r\n") else data.removesuffix(b"\n")
