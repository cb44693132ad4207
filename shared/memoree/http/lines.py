"""Cutting a stream of bytes into lines, holding at most one of bounded length."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BLANK = re.compile(rb"[ \t\r\n]*")
"""What JSON calls whitespace."""


class LineCutter:
    """Lines end in LF. Blank ones and the blanks before others are skipped in one go, however many they are, and
    counted in `blank_bytes`. `None` stands for a line that was too long; its bytes have been let go as they came."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held = bytearray()
        self._too_long = False
        self.blank_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that these bytes complete."""
        at = 0
        while (at := self._without_blanks(data, at)) < len(data):
            end = data.find(b"\n", at)
            if end < 0:
                self._hold(data[at:])
                return
            self._hold(data[at:end])
            yield self._taken()
            at = end + 1

    def end(self) -> Iterator[bytes | None]:
        """The last line, if the stream does not end in LF."""
        if self._held or self._too_long:
            yield self._taken()

    def _without_blanks(self, data: bytes, at: int) -> int:
        """Where a line goes on, or the next one begins."""
        if self._held or self._too_long:
            return at
        blanks = _BLANK.match(data, at)
        assert blanks is not None, "it matches nothing as well"
        self.blank_bytes += blanks.end() - at
        return blanks.end()

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
