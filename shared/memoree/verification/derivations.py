"""The marks of revisions that quote this store, against what their texts quote. Made again from the texts, they lose
nothing."""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from memoree.database import derivations
from memoree.database.connection import scalar
from memoree.verification.issue import Issue
from memoree.verification.rule import Rule, breaches

RULES = (
    Rule(
        "derivation",
        "the revision has no text that could quote anything",
        """
        SELECT r.revision_id FROM derivations d JOIN artifact_revisions r ON r.row_id = d.revision_row
        WHERE NOT EXISTS (SELECT 1 FROM artifact_chunks c WHERE c.revision_row = d.revision_row AND c.end_byte > 0)
        """,
    ),
)
_REVISION_ID = "SELECT revision_id FROM artifact_revisions WHERE row_id = ?"


def issues(db: apsw.Connection) -> Iterator[Issue]:
    yield from breaches(db, RULES)
    for row, text in derivations.texts(db):
        if derivations.marked(db, row) != derivations.quoted_by(db, row, text):
            revision_id = scalar(db, _REVISION_ID, (row,))
            yield Issue("derivation", revision_id, "its mark is not what its text quotes of the store")
