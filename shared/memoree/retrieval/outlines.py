"""The heading paths of stored chunks, one reading of a revision for all of its chunks (MemoryProtocol §5)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import orjson

from memoree.database.connection import scalar
from memoree.episodes.headings import Heading, headings, path_at

FUNCTION = "heading_path"
REVISIONS_KEPT = 256

_BODY = "SELECT body FROM artifact_revisions WHERE row_id = ?"
_CHUNK_TEXTS = "SELECT text FROM artifact_chunks WHERE revision_row = ? ORDER BY ordinal"


class Outlines:
    """Of one state of the store, for the time of one request."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._kept: OrderedDict[int, list[Heading]] = OrderedDict()

    def path(self, revision_row: int, start: int) -> list[str]:
        """Of the chunk that starts there, in bytes."""
        if (found := self._kept.get(revision_row)) is None:
            found = self._kept[revision_row] = headings(self._text(revision_row))
            if len(self._kept) > REVISIONS_KEPT:
                self._kept.popitem(last=False)
        return path_at(found, start)

    @contextmanager
    def in_sql(self) -> Iterator[None]:
        """Statements may ask for `heading_path(revision_row, start_byte)`, a JSON array, meanwhile."""

        def path(*where: Any) -> str:
            return orjson.dumps(self.path(*where)).decode()

        self._db.create_scalar_function(FUNCTION, path, 2, deterministic=True)
        try:
            yield
        finally:
            self._db.create_scalar_function(FUNCTION, None, 2)

    def _text(self, revision_row: int) -> bytes:
        """The body, or what the index keeps of one that is a blob: its chunks are the whole of it."""
        body: bytes | None = scalar(self._db, _BODY, (revision_row,))
        if body is not None:
            return body
        texts: Iterable[tuple[Any, ...]] = self._db.execute(_CHUNK_TEXTS, (revision_row,))
        return b"".join((text or "").encode() for (text,) in texts)
