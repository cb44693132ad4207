"""LTX files, the change files Litestream writes: their names, their bytes, and which of them to use.

Everything here is pure except `apply`, which writes to a file descriptor it is given.
The format is described in the design, §6.1; the facts were measured on Litestream 0.5.17.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

import fastcrc
import lz4.block

RAW_LEVEL: Final = 0
SNAPSHOT_LEVEL: Final = 9
TXID_MAX: Final = (1 << 64) - 1

PAGE_SIZE_MIN: Final = 512
PAGE_SIZE_MAX: Final = 65_536

_MAGIC: Final = b"LTX1"
_FLAG_NO_DATABASE_CHECKSUM: Final = 0x2
_HEADER_BYTES: Final = 100
_HEADER: Final = struct.Struct(">4sIIIQQQQ")
_PAGE_FLAG_SIZE_FOLLOWS: Final = 0x1
_PAGE_HEADER: Final = struct.Struct(">IHI")
_PAGES_END: Final = bytes(6)
_INDEX_SIZE: Final = struct.Struct(">Q")
_INDEX_BYTES_MIN: Final = 1 + _INDEX_SIZE.size
"""The index is never absent: at least its own end marker, then its size."""
_TRAILER: Final = struct.Struct(">QQ")
_TRAILER_CHECKED_BYTES: Final = 8
_CHECKSUM_FLAG: Final = 1 << 63
_NAME: Final = re.compile(r"(?:\A|/)([0-9a-f]{4})/([0-9a-f]{16})-([0-9a-f]{16})\.ltx\Z")


class LtxError(Exception):
    """The bytes are not one whole, undamaged LTX file of the kind Litestream 0.5 writes."""


@dataclass(frozen=True, slots=True, order=True)
class LtxName:
    """Which changes a file holds: everything from `min_txid` to `max_txid`, both included.

    Level 0 is raw, 1 to 8 are compacted, 9 are snapshots (the whole database at `max_txid`).
    """

    level: int
    min_txid: int
    max_txid: int

    def __post_init__(self) -> None:
        if not 0 <= self.level <= SNAPSHOT_LEVEL or not 1 <= self.min_txid <= self.max_txid <= TXID_MAX:
            raise ValueError(f"not an LTX file: level {self.level}, TXIDs {self.min_txid} to {self.max_txid}")


@dataclass(frozen=True, slots=True)
class LtxHeader:
    """`commit_pages` is the size of the database once this file is applied, in pages of `page_size` bytes."""

    page_size: int
    commit_pages: int
    min_txid: int
    max_txid: int
    timestamp_ms: int

    @property
    def database_bytes(self) -> int:
        return self.commit_pages * self.page_size


@dataclass(frozen=True, slots=True)
class LtxFile:
    """A verified file. It stays compressed: pages are expanded one by one, as they are asked for."""

    header: LtxHeader
    body: bytes

    def pages(self) -> Iterator[tuple[int, bytes]]:
        """Page numbers, counted from 1 and ascending, each with exactly one page."""
        for block in _blocks(memoryview(self.body), self.header):
            yield block.number, block.page


def format_name(name: LtxName) -> str:
    """The key below an epoch's prefix.

    >>> format_name(LtxName(0, 1, 31))
    '0000/0000000000000001-000000000000001f.ltx'
    """
    return f"{name.level:04x}/{format_txid(name.min_txid)}-{format_txid(name.max_txid)}.ltx"


def format_txid(txid: int) -> str:
    """Sixteen hexadecimal digits, as in keys and as `litestream restore -txid` wants them."""
    return f"{txid:016x}"


def parse_name(key: str) -> LtxName | None:
    """The name at the end of a key, whatever its prefix; `None` for an object that is no LTX file."""
    match = _NAME.search(key)
    if match is None:
        return None
    try:
        return LtxName(*(int(digits, 16) for digits in match.groups()))
    except ValueError:
        return None


def decode(body: bytes, name: LtxName | None = None) -> LtxFile:
    """Verify a whole file; given its `name`, verify that it holds what the name says.

    Raises `LtxError` for any damage: every byte that can change a page is under the file checksum.
    """
    return LtxFile(prove(memoryview(body), name), body)


def prove(view: memoryview, name: LtxName | None = None) -> LtxHeader:
    """As `decode`, for a file that need not be in memory, and is not kept."""
    header = _decode_header(view)
    if name is not None and (header.min_txid, header.max_txid) != (name.min_txid, name.max_txid):
        _refuse(f"{format_name(name)} holds TXIDs {header.min_txid} to {header.max_txid}")
    try:
        end, checksum = _checked_pages(view, header)
    except (lz4.block.LZ4BlockError, struct.error) as error:
        raise LtxError(f"damaged page block: {error}") from error
    _verify_tail(view, end, checksum)
    return header


def apply(file: LtxFile, descriptor: int) -> None:
    """Write the pages into a database file nobody has open, then cut or extend it to its new size.

    Not atomic: after an `OSError` the database file is torn and must be thrown away.
    """
    page_size = file.header.page_size
    for number, page in file.pages():
        if os.pwrite(descriptor, page, (number - 1) * page_size) != page_size:
            raise OSError(f"short write of page {number}")
    os.ftruncate(descriptor, file.header.database_bytes)


def plan_fill(position: int, target: int, available: Iterable[LtxName]) -> list[LtxName] | None:
    """The files that bring a copy from `position` to exactly `target`, in order; `None` if they cannot.

    Raw files first, and the compacted file that reaches furthest where they have a gap. A file may begin
    before the position: applying changes twice is harmless, since every page is at `max_txid` afterwards.
    Snapshots are left out, being a full restore.
    """
    usable = [name for name in available if name.level < SNAPSHOT_LEVEL and name.max_txid <= target]
    raw = _Reach(name for name in usable if name.level == RAW_LEVEL)
    compacted = _Reach(name for name in usable if name.level != RAW_LEVEL)
    plan = []
    while position < target:
        step = raw.furthest_from(position) or compacted.furthest_from(position)
        if step is None:
            return None
        plan.append(step)
        position = step.max_txid
    return plan


def restorable_boundaries(names: Iterable[LtxName]) -> list[int]:
    """The TXIDs that `litestream restore -txid` accepts, ascending, given every file of a prefix.

    A TXID is a boundary when it ends a chain of files from TXID 1 (snapshots begin there too), each
    continuing or overlapping the one before and none reaching past it. Between boundaries restore fails.
    """
    boundaries: list[int] = []
    reached = 0
    for name in sorted(names, key=_by_end):
        if name.max_txid > reached and name.min_txid <= reached + 1:
            reached = name.max_txid
            boundaries.append(reached)
    return boundaries


class _Reach:
    """Files ordered by their start, asked for ever later positions: one pass over all of them."""

    def __init__(self, names: Iterable[LtxName]) -> None:
        self._waiting: Iterator[LtxName] = iter(sorted(names, key=_by_start))
        self._next = next(self._waiting, None)
        self._best: LtxName | None = None

    def furthest_from(self, position: int) -> LtxName | None:
        """Of the files that continue or overlap `position`, the one with the greatest end after it."""
        while self._next is not None and self._next.min_txid <= position + 1:
            if self._best is None or self._next.max_txid > self._best.max_txid:
                self._best = self._next
            self._next = next(self._waiting, None)
        if self._best is not None and self._best.max_txid > position:
            return self._best
        return None


def _by_start(name: LtxName) -> int:
    return name.min_txid


def _by_end(name: LtxName) -> tuple[int, int]:
    return name.max_txid, name.min_txid


def _decode_header(view: memoryview) -> LtxHeader:
    if len(view) < _HEADER_BYTES + len(_PAGES_END) + _INDEX_BYTES_MIN + _TRAILER.size:
        _refuse(f"only {len(view)} bytes")
    magic, flags, page_size, commit_pages, min_txid, max_txid, timestamp_ms, _ = _HEADER.unpack_from(view)
    if magic != _MAGIC:
        _refuse(f"magic {magic!r}")
    if flags != _FLAG_NO_DATABASE_CHECKSUM:
        _refuse(f"flags {flags:#x}")
    if not PAGE_SIZE_MIN <= page_size <= PAGE_SIZE_MAX or page_size & (page_size - 1):
        _refuse(f"page size {page_size}")
    if commit_pages == 0:
        _refuse("an empty database")
    if not 1 <= min_txid <= max_txid:
        _refuse(f"TXIDs {min_txid} to {max_txid}")
    return LtxHeader(page_size, commit_pages, min_txid, max_txid, timestamp_ms)


class _Block(NamedTuple):
    """One page as it stands in the file: its header from `position`, its compressed bytes from `start` to `end`."""

    position: int
    start: int
    end: int
    number: int
    page: bytes


def _blocks(view: memoryview, header: LtxHeader) -> Iterator[_Block]:
    """Every page up to the end marker. Raises `LtxError`, and what LZ4 and `struct` raise."""
    page_size, commit_pages = header.page_size, header.commit_pages
    decompress = lz4.block.decompress
    previous = 0
    position = _HEADER_BYTES
    while view[position : position + len(_PAGES_END)] != _PAGES_END:
        number, flags, size = _PAGE_HEADER.unpack_from(view, position)
        start = position + _PAGE_HEADER.size
        if not previous < number <= commit_pages:
            _refuse(f"page {number} after page {previous} in a database of {commit_pages} pages")
        if flags != _PAGE_FLAG_SIZE_FOLLOWS:
            _refuse(f"page {number} has flags {flags:#x}")
        if size > len(view) - start:
            _refuse(f"page {number} is cut off")
        page = decompress(view[start : start + size], uncompressed_size=page_size)
        if len(page) != page_size:
            _refuse(f"page {number} expands to {len(page)} bytes")
        yield _Block(position, start, start + size, number, page)
        previous = number
        position = start + size


def _checked_pages(view: memoryview, header: LtxHeader) -> tuple[int, int]:
    """The offset after the pages' end marker, and the checksum of everything up to there.

    The checksum covers the uncompressed pages, so it can only be taken along the way.
    """
    crc = fastcrc.crc64.go_iso
    end = _HEADER_BYTES
    checksum = crc(view[:end])
    for block in _blocks(view, header):
        checksum = crc(block.page, crc(view[block.position : block.start], checksum))
        end = block.end
    after = end + len(_PAGES_END)
    return after, crc(view[end:after], checksum)


def _verify_tail(view: memoryview, position: int, checksum: int) -> None:
    """The page index must fill the space up to the trailer, whose last number is the file checksum."""
    index_bytes = len(view) - position - _TRAILER.size
    if index_bytes < _INDEX_BYTES_MIN:
        _refuse("the page index is missing")
    (stated,) = _INDEX_SIZE.unpack_from(view, position + index_bytes - _INDEX_SIZE.size)
    if stated != index_bytes - _INDEX_SIZE.size:
        _refuse(f"a page index of {stated} bytes in a space of {index_bytes - _INDEX_SIZE.size}")
    _, expected = _TRAILER.unpack_from(view, position + index_bytes)
    checked = view[position : position + index_bytes + _TRAILER_CHECKED_BYTES]
    actual = fastcrc.crc64.go_iso(checked, checksum) | _CHECKSUM_FLAG
    if actual != expected:
        _refuse(f"checksum {actual:016x} instead of {expected:016x}")


def _refuse(what: str) -> NoReturn:
    raise LtxError(f"not a whole LTX file: {what}")
