"""What an erasure must not have left behind, and what it must (design §8, field fault 16).

An erased artifact or claim is no damage, and any word of it is. What the rows of others tell is found the way the
erasure finds it; what is in them is compared with what it leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apsw
import orjson

from memoree.database import erasures, events, idempotency, index
from memoree.verification.issue import Issue
from memoree.verification.rule import Rule, breaches

_ERASED_IDS = """
    SELECT artifact_id FROM artifacts WHERE erasure_row IS NOT NULL
    UNION ALL SELECT claim_id FROM claims WHERE erasure_row IS NOT NULL
"""
_EVENTS_OF = """
    SELECT commit_seq FROM events WHERE actor IS NOT NULL AND commit_seq IN (SELECT value FROM json_each(?))
"""
_UNUSED_WORDS = """
    SELECT word FROM words w
    WHERE NOT EXISTS (SELECT 1 FROM artifact_vocabulary v WHERE v.term = w.word)
        AND NOT EXISTS (SELECT 1 FROM claim_vocabulary v WHERE v.term = w.word)
"""

RULES = (
    Rule(
        "erasure",
        "the artifact was erased and its revision {0} still says something",
        """
        SELECT a.artifact_id, r.revision_id FROM artifacts a JOIN artifact_revisions r ON r.artifact_row = a.row_id
        WHERE a.erasure_row IS NOT NULL AND (
            (r.title, r.media_type, r.blob_hash, r.body, r.provenance) <> ('', '', zeroblob(32), x'', '{}')
            OR r.body IS NULL OR r.actor IS NOT NULL
            OR EXISTS (SELECT 1 FROM artifact_chunks c WHERE c.revision_row = r.row_id))
        """,
    ),
    Rule(
        "erasure",
        "the claim was erased and its revision {0} still says or cites something",
        """
        SELECT c.claim_id, r.revision_id FROM claims c JOIN claim_revisions r ON r.claim_row = c.row_id
        WHERE c.erasure_row IS NOT NULL AND (
            r.statement <> '' OR r.confidence IS NOT NULL OR r.actor IS NOT NULL
            OR EXISTS (SELECT 1 FROM claim_evidence e WHERE e.claim_revision_row = r.row_id))
        """,
    ),
    Rule(
        "erasure",
        "was erased by commit {0}, and is {1}",
        """
        SELECT artifact_id, erasure_row, status FROM artifacts
        WHERE erasure_row IS NOT NULL AND (status, forgotten_reason, kind) <> ('forgotten', 'erased', 'erased')
        UNION ALL
        SELECT claim_id, erasure_row, status FROM claims
        WHERE erasure_row IS NOT NULL AND (status, retraction_reason) <> ('retracted', 'erased')
        """,
    ),
    Rule(
        "erasure",
        "the relation is about something that was erased and still says why",
        f"""
        SELECT relation_id FROM relations
        WHERE metadata <> '{{}}' AND (source_id IN ({_ERASED_IDS}) OR target_id IN ({_ERASED_IDS}))
        """,  # noqa: S608 - constants, here and below
    ),
    Rule(
        "erasure",
        "the projection is of an artifact that was erased and still says something",
        """
        SELECT p.projection_id FROM projections p JOIN artifact_revisions r ON r.row_id = p.revision_row
        JOIN artifacts a ON a.row_id = r.artifact_row
        WHERE a.erasure_row IS NOT NULL AND (p.status <> 'dropped' OR p.text <> '' OR p.metadata <> '{}'
            OR p.actor IS NOT NULL OR p.projection_key <> p.projection_id)
        """,
    ),
    Rule(
        "erasure",
        "the item stands for an artifact that was erased and still has the name the source gave it",
        """
        SELECT i.row_id FROM source_items i JOIN artifacts a ON a.row_id = i.artifact_row
        WHERE a.erasure_row IS NOT NULL
            AND (i.external_id <> 'erased:' || i.row_id OR i.payload_digest <> zeroblob(32))
        """,
    ),
    Rule(
        "erasure",
        "the episode was erased and what its version {0} said is still there",
        """
        SELECT a.artifact_id, p.row_id FROM artifacts a JOIN episodes p ON p.artifact_row = a.row_id
        WHERE a.erasure_row IS NOT NULL
        """,
    ),
    Rule(
        "erasure",
        "the feedback is about something that was erased and still names it",
        f"""
        SELECT feedback_id FROM feedback f WHERE EXISTS (
            SELECT 1 FROM ({_ERASED_IDS}) WHERE instr(f.citations, artifact_id) OR instr(f.note, artifact_id))
        """,  # noqa: S608
    ),
    Rule(
        "erasure",
        "the commit {0} erased nothing that is here",
        """
        SELECT erasure_id, row_id FROM erasures e
        WHERE NOT EXISTS (SELECT 1 FROM artifacts WHERE erasure_row = e.row_id)
            AND NOT EXISTS (SELECT 1 FROM claims WHERE erasure_row = e.row_id)
        """,
    ),
)


def issues(db: apsw.Connection) -> Iterator[Issue]:
    yield from breaches(db, RULES)
    erased = [str(entity_id) for (entity_id,) in db.execute(_ERASED_IDS)]
    if erased:
        yield from _told_in_the_log(db, erased)
        yield from _left_in_the_index(db)


def _told_in_the_log(db: apsw.Connection, erased: Sequence[str]) -> Iterator[Issue]:
    """The events of the erasures themselves are about what they erased too, and have no actor."""
    commits = erasures.commits_telling(db, erased)
    for record in idempotency.of_commits(db, events.with_rest_of_requests(db, commits)):
        yield Issue("erasure", f"commit {record.commit_seq}", "its acknowledgement tells of something that was erased")
    for (commit_seq,) in db.execute(_EVENTS_OF, (orjson.dumps(commits).decode(),)):
        yield Issue("erasure", f"commit {commit_seq}", "its event says who did something to what was erased")


def _left_in_the_index(db: apsw.Connection) -> Iterator[Issue]:
    """Words of projections are learned nowhere, and may leave their beginnings behind when one is dropped."""
    for table in index.LEARNED_TABLES:
        if index.has_remnants(db, table):
            yield Issue("erasure", table, "holds the beginning of a word that none of its rows has")
    unused = (str(word) for (word,) in db.execute(_UNUSED_WORDS))
    if left := sum(not index.is_used(db, word) for word in unused):
        yield Issue("erasure", "words", f"{left} of them are in no text")
