"""A store and what is wrong with it, for the tests of the inbox."""

from __future__ import annotations

from collections.abc import Iterator

from memoree.objects.audit import BlobFault, BlobRef
from memoree.verification.store import verify
from operations.bench import Bench


class WholeBlobs:
    """An audit that finds every blob whole: what a test of rows asks for."""

    def faults(self, referenced: Iterator[BlobRef]) -> Iterator[BlobFault]:
        list(referenced)
        return iter(())


def issues(bench: Bench) -> list[str]:
    return verify(bench.db, WholeBlobs()).lines()
