"""Cutting a stream of bytes into lines, holding at most one of bounded length."""

from __future__ import annotations

from collections.abc import Iterator


class LineCutter:
    """Lines end in LF. `None` stands for one that was too long; its bytes have been let go as they came."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = bytearray()
        self._too_long = False

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that these bytes complete."""
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._hold(end)
            yield self._taken()
        self._hold(rest)

    def end(self) -> Iterator[bytes | None]:
        """The last line, if the stream does not end in LF."""
        if self._held or self._too_long:
            yield self._taken()

    def _hold(self, data: bytes) -> None:
        if self._too_long or len(self._held) + len(data) > self._bytes_max:
            self._too_long = True
            self._held.clear()
        else:
            self._held += data

    def _taken(self) -> bytes | None:
        line = None if self._too_long else bytes(self._held)
        self._held.clear()
        self._too_long = False
        return line
