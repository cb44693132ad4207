"""The form of an export: a tar archive whose bytes follow from the store's content alone.

| member | what it is |
| --- | --- |
| `export.json` | first: the counters of the state, and how many rows, erasures and blobs follow |
| `erasures/<id>.json` | what was erased, so that it stays so |
| `tables/<table>/<part>.jsonl` | rows in the order of their keys, one JSON object each; bytes as base64 |
| `blobs/<digest>` | the bytes themselves, in ascending order of digests |

Full-text indexes, vocabularies, outcomes of single attempts and collections under way are not in it: they are made
again, or mean nothing elsewhere.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, BinaryIO, NamedTuple

import orjson
from pydantic import Field, ValidationError

from memoree import limits
from memoree.envelope import WireModel
from memoree.errors import Code, MemoreeError, invalid, shown

FORMAT = 1
HEADER_NAME = "export.json"
HEADER_BYTES_MAX = 1024 * 1024
PART_BYTES_TARGET = 4 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
LINE_BYTES_MAX = 4 * limits.FRAME_BYTES_MAX
"""Of one row: more than any request can have made one."""

_TABLE_PART = re.compile(r"tables/([a-z_]{1,64})/\d{6}\.jsonl")
_BLOB = re.compile(r"blobs/([0-9a-f]{64})")
_ERASURE = re.compile(r"erasures/[A-Za-z0-9_.-]{1,128}\.json")


Count = Annotated[int, Field(ge=0, le=limits.COUNTER_MAX)]


class Header(WireModel):
    """`tables` maps names to numbers of rows; `integrity` is the store's sum in hex."""

    schema_version: Count
    commit_seq: Count
    hlc: Annotated[int, Field(ge=0, le=limits.HLC_MAX)]
    integrity: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    tables: dict[str, Count]
    erasures: Count
    blobs: Count
    blob_bytes: Count
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        return orjson.dumps(self.model_dump(), option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def from_bytes(cls, body: bytes) -> Header:
        """Raises `INVALID_REQUEST` for anything but a header of a format this program knows."""
        try:
            document = orjson.loads(body)
            if document["format"] != FORMAT:
                invalid(f"the export has format {shown(document['format'])}, this program reads {FORMAT}; upgrade it")
            return cls.model_validate(document)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValidationError) as error:
            raise _no_export(f"{HEADER_NAME} cannot be read: {error}") from error


class ArchiveWriter:
    """Writes members in the order they are given; nothing of time, place or user is in the bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.bytes_written = 0

    def add(self, name: str, data: bytes) -> None:
        self.add_pieces(name, len(data), [data])

    def add_pieces(self, name: str, size: int, pieces: Iterable[bytes]) -> None:
        """`pieces` make up exactly `size` bytes; what they raise is passed on and leaves a broken archive."""
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, 0o600
        self._write(member.tobuf(tarfile.USTAR_FORMAT))
        written = 0
        for piece in pieces:
            self._write(piece)
            written += len(piece)
        assert written == size, f"{name}: {written} bytes where {size} were announced"
        self._write(bytes(-size % tarfile.BLOCKSIZE))

    def close(self) -> None:
        """End the archive; the file stays open."""
        self._write(bytes(2 * tarfile.BLOCKSIZE))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self.bytes_written += len(data)


class TablePart(NamedTuple):
    table: str
    rows: Iterator[Mapping[str, object]]


class BlobMember(NamedTuple):
    digest: str
    size: int
    pieces: Iterator[bytes]


class ErasureMember(NamedTuple):
    body: bytes


Member = TablePart | BlobMember | ErasureMember


class ArchiveReader:
    """Reads an export once, front to back. Each member is used before the next one is asked for.

    Everything raises `INVALID_REQUEST` for what is no export, is damaged, or ends too early."""

    def __init__(self, file: BinaryIO) -> None:
        with _told():
            self._archive = tarfile.open(fileobj=file, mode="r|")  # noqa: SIM115 - the caller owns the file
            first = self._archive.next()
        if first is None or first.name != HEADER_NAME or first.size > HEADER_BYTES_MAX:
            raise _no_export(f"it does not begin with {HEADER_NAME}")
        self.header = Header.from_bytes(b"".join(self._pieces(first)))

    def members(self) -> Iterator[Member]:
        while True:
            with _told():
                found = self._archive.next()
            if found is None:
                return
            yield self._member(found)

    def _member(self, found: tarfile.TarInfo) -> Member:
        if not found.isreg():
            raise _no_export(f"{shown(found.name)} is no file")
        if match := _TABLE_PART.fullmatch(found.name):
            return TablePart(match[1], self._rows(found))
        if match := _BLOB.fullmatch(found.name):
            return BlobMember(match[1], found.size, self._pieces(found))
        if _ERASURE.fullmatch(found.name):
            if found.size > limits.ERASURE_RECORD_BYTES_MAX:
                raise _no_export(f"{shown(found.name)} has {found.size} bytes")
            return ErasureMember(b"".join(self._pieces(found)))
        raise _no_export(f"{shown(found.name)} is no part of one")

    def _rows(self, found: tarfile.TarInfo) -> Iterator[Mapping[str, object]]:
        rest = bytearray()
        for piece in self._pieces(found):
            first, *lines = piece.split(b"\n")
            rest += first
            if len(rest) > LINE_BYTES_MAX:
                raise _no_export(f"a line of {found.name} has more than {LINE_BYTES_MAX} bytes")
            for line in lines:
                yield _row(found.name, bytes(rest))
                rest = bytearray(line)
        if rest:
            yield _row(found.name, bytes(rest))

    def _pieces(self, found: tarfile.TarInfo) -> Iterator[bytes]:
        left = found.size
        with _told():
            file = self._archive.extractfile(found)
        assert file is not None, "only files get here"
        while left:
            with _told():
                piece = file.read(min(PIECE_BYTES, left))
            if not piece:
                raise _no_export(f"it ends inside {shown(found.name)}")
            left -= len(piece)
            yield piece


@contextmanager
def _told() -> Iterator[None]:
    """The archive's own errors, as this program's."""
    try:
        yield
    except (tarfile.TarError, EOFError) as error:
        raise _no_export(str(error)) from error


def _row(name: str, line: bytes) -> Mapping[str, object]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _no_export(f"a line of {name} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise _no_export(f"a line of {name} is no object")
    return row


def _no_export(why: str) -> MemoreeError:
    return MemoreeError(Code.INVALID_REQUEST, f"this is no whole export of a store: {why}")
