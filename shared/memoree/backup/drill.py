"""The restore drill: what a database answers, and by which plans, in two digests (field fault 64).

A copy may hold every row and still be weaker than its source: without an index it is slow, without a word or a partial
index it finds less. So both are asked the same, and must answer alike, byte by byte and step by step. The questions are
taken from the rows themselves, each once as it is and once misspelled; a backup keeps the digests only, so it holds no
text beside the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import apsw
import orjson
from blake3 import blake3

from memoree.database import meta
from memoree.database.connection import scalar
from memoree.envelope import Envelope
from memoree.errors import Code, MemoreeError
from memoree.operations.call import validate
from memoree.operations.execute import run_read
from memoree.operations.view import ServiceFacts, View

TEXTS_PER_TABLE = 3
WORDS_PER_QUESTION = 6
MISSPELLED_LETTERS_MIN = 5
"""Shorter words are not guessed."""
RECALLED = 10
ASKED = {
    "memory.recall": {"max_claims": RECALLED, "max_artifact_refs": RECALLED},
    "search": {"limit": RECALLED, "include_historical": True},
}
"""Operation → its bounds."""
CONTEXT = {"workspace_id": "memoree", "project_id": "drill"}

_TEXTS = (
    ("SELECT max(row_id) FROM claim_revisions", "SELECT statement FROM claim_revisions WHERE row_id >= ? LIMIT 1"),
    ("SELECT max(row_id) FROM artifact_revisions", "SELECT title FROM artifact_revisions WHERE row_id >= ? LIMIT 1"),
)
"""Per table: its last row, and the text of the first row from one on."""

_FACTS = ServiceFacts("drill", 0, authorization=False, pid=0, running=False, lifecycle_owner="drill")

_rehearsals = count(1)


@dataclass(frozen=True, slots=True)
class Drill:
    """`at` is the instant as of which was asked, in stored form, `questions` how many there were; the digests (BLAKE3,
    hex) are of all answers, and of the plan of every statement that it took to give them."""

    at: str
    questions: int
    answers: str
    plans: str


class _NoBlobs:
    """Finding something needs no blob: what is looked through is in the database."""

    def read(self, digest: bytes, size: int) -> bytes:
        raise MemoreeError(Code.INTERNAL_ERROR, "a drill reads no blobs")


def rehearse(db: apsw.Connection, at: str) -> Drill:
    """Ask the database, which must show one state throughout. Raises what reading it raises."""
    statements: dict[str, Any] = {}

    def note(_: apsw.Cursor, sql: str, bindings: Any) -> bool:
        if sql.lstrip().startswith(("SELECT", "WITH")):
            statements[sql] = bindings
        return True

    # What is counted of a state is kept by the process: a copy must not be answered with the counts of its source.
    unheard_of = replace(meta.read(db), history=-next(_rehearsals))
    view = View(db, _NoBlobs(), _FACTS, unheard_of, at)
    questions = list(dict.fromkeys(_questions(db)))
    answers, plans = blake3(), blake3()
    db.exec_trace = note
    try:
        for question in questions:
            for operation, bounds in ASKED.items():
                answers.update(_answer(view, operation, {"query": question, **bounds}))
    finally:
        db.exec_trace = None
    for sql in sorted(statements):
        plan = [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {sql}", statements[sql])]
        plans.update(orjson.dumps([sql, plan]))
    return Drill(at, len(questions), answers.hexdigest(), plans.hexdigest())


def _questions(db: apsw.Connection) -> Iterator[str]:
    for last, text in _TEXTS:
        rows = scalar(db, last) or 0
        for number in range(min(TEXTS_PER_TABLE, rows)):
            words = scalar(db, text, (1 + number * rows // TEXTS_PER_TABLE,)).split()[:WORDS_PER_QUESTION]
            yield " ".join(words)
            yield " ".join(_misspelled(words))


def _misspelled(words: list[str]) -> list[str]:
    """The longest word without a letter in its middle."""
    longest = max(words, key=len, default="")
    if len(longest) < MISSPELLED_LETTERS_MIN:
        return words
    middle = len(longest) // 2
    return [word[:middle] + word[middle + 1 :] if word == longest else word for word in words]


def _answer(view: View, operation: str, input: dict[str, Any]) -> bytes:
    """The result, or the code of a refusal: not every text is a question."""
    try:
        envelope = Envelope(
            request_id="req_drill",
            op=operation,
            idempotency_key=None,
            context=CONTEXT,
            context_source="explicit",
            input={**input, "horizon": "personal", "reason": "restore drill"},
        )
        return orjson.dumps(run_read(view, validate(envelope)))
    except MemoreeError as error:
        if error.code is not Code.INVALID_REQUEST:
            raise
        return error.code.encode()
