"""Files of a backup, packed with zstd: in a few megabytes of memory, and proven on both sides of the packing.

The digest of the content is BLAKE3, as everywhere; that of the stored object is SHA-256, which every system can
compute without installing anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import zstandard
from blake3 import blake3

from memoree import limits
from memoree.backup.database import create_private

LEVEL = 1
"""Databases shrink to about the same at higher levels, which cost several times as much."""


class Unpacked(Exception):
    """A packed file or its content is not what was recorded; says how."""


@dataclass(frozen=True, slots=True)
class PackedFile:
    """An object of a backup. `size` and `digest` (BLAKE3, hex) are of the content, `stored_size` and `stored_sha256` of
    the object `name`."""

    name: str
    size: int
    digest: str
    stored_size: int
    stored_sha256: str


def pack(source: Path, target: Path) -> PackedFile:
    """Write the new file `target`. Raises `OSError`."""
    content, stored = blake3(), hashlib.sha256()
    size, stored_size = source.stat().st_size, 0
    packer = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compressobj(size=size)
    with source.open("rb") as reading, create_private(target) as writing:

        def keep(packed: bytes) -> None:
            nonlocal stored_size
            stored.update(packed)
            stored_size += writing.write(packed)

        for piece in pieces(reading):
            content.update(piece)
            keep(packer.compress(piece))
        keep(packer.flush())
    return PackedFile(target.name, size, content.hexdigest(), stored_size, stored.hexdigest())


def unpack(source: Path, packed: PackedFile, target: Path) -> None:
    """Write the content to the new file `target`, which is not there when it is not proven. What is stored is proven
    first, so that nothing expands but what was packed. Raises `Unpacked`, `OSError`."""
    with source.open("rb") as reading:
        found = hashlib.file_digest(reading, "sha256").hexdigest()
        if found != packed.stored_sha256:
            raise Unpacked(f"what is stored has the SHA-256 {found} where {packed.stored_sha256} was recorded")
        reading.seek(0)
        content, size = blake3(), 0
        try:
            with create_private(target) as writing:
                for piece in pieces(zstandard.ZstdDecompressor().stream_reader(reading)):
                    content.update(piece)
                    size += writing.write(piece)
            if (size, content.hexdigest()) != (packed.size, packed.digest):
                raise Unpacked(f"its content, {size} bytes, hashes to {content.hexdigest()} and not to {packed.digest}")
        except BaseException:
            target.unlink()
            raise


def pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(limits.BACKUP_PIECE_BYTES):
        yield piece
