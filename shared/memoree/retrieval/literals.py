"""Literals: pieces of a query with punctuation inside (`38.101`, `src/app.py`), looked for as they were written.

The index splits them into words. A row with those words together is a better match than one with them scattered,
and a row with the very piece, punctuation included, is the best. Neither decides what qualifies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import apsw
import orjson

from memoree.retrieval.candidates import Candidate
from memoree.retrieval.query import Query
from memoree.retrieval.text import fold

_STATEMENTS = """
    SELECT r.row_id, r.statement FROM json_each(?) AS page
    CROSS JOIN claim_revisions AS r ON r.row_id = page.value
"""
_BODIES = """
    SELECT r.row_id, r.title,
        coalesce(c.text, CAST(substr(r.body, c.start_byte + 1, c.end_byte - c.start_byte) AS TEXT), '')
    FROM json_each(?) AS page
    CROSS JOIN artifact_revisions AS r ON r.row_id = page.value ->> 0
    LEFT JOIN artifact_chunks AS c ON c.row_id = page.value ->> 1
"""


def confirm_literals(db: apsw.Connection, query: Query, pool: Iterable[Candidate]) -> None:
    """Note which candidates with the words of a literal together have it as it was written."""
    worth_reading = [candidate for candidate in pool if candidate.literals]
    if not worth_reading:
        return
    patterns = [re.compile(rf"(?<!\w){re.escape(literal.text)}(?!\w)") for literal in query.literals]
    texts = _texts(db, worth_reading)
    for candidate in worth_reading:
        text = fold(texts[candidate.entity_type, candidate.revision_row])
        candidate.written_literals = sum(1 << n for n, pattern in enumerate(patterns) if pattern.search(text))


def _texts(db: apsw.Connection, members: Iterable[Candidate]) -> dict[tuple[str, int], str]:
    claims = [member.revision_row for member in members if member.entity_type == "claim"]
    artifacts = [(member.revision_row, member.chunk_row) for member in members if member.entity_type == "artifact"]
    statements: Iterable[tuple[Any, ...]] = db.execute(_STATEMENTS, (orjson.dumps(claims).decode(),))
    texts = {("claim", row): statement for row, statement in statements}
    bodies: Iterable[tuple[Any, ...]] = db.execute(_BODIES, (orjson.dumps(artifacts).decode(),))
    texts.update({("artifact", row): f"{title}\n{body}" for row, title, body in bodies})
    return texts
