"""Damages of a store that saw `mixed_mutations`, by the kind of issue each is: SQL behind the program's back."""

from __future__ import annotations

from memoree.verification.index import INDEXES
from memoree.verification.issue import DatabaseKind
from mixed_mutations import LONG_TEXT

OPEN = "SELECT min(case_sequence) FROM conflict_cases WHERE state = 'open'"
STALE = "SELECT min(case_sequence) FROM conflict_cases WHERE state = 'stale'"
RESOLVED = "SELECT min(case_sequence) FROM conflict_cases WHERE state = 'resolved'"
LONG = "SELECT row_id FROM artifact_revisions WHERE body IS NULL"
DRAFT = "SELECT head_row FROM artifacts WHERE forgotten_reason = 'a draft'"
CONFLICTED = "SELECT min(row_id) FROM claims WHERE status = 'conflicted'"
CITING = "SELECT claim_revision_row FROM claim_evidence"
LAST_COMMIT = "SELECT commit_seq FROM meta"
STANDUP = "SELECT row_id FROM artifacts WHERE kind = 'episode' AND status = 'active'"
RUMOUR = "SELECT row_id FROM artifacts WHERE kind = 'episode' AND status = 'forgotten'"
LIVE_ITEM = "SELECT min(row_id) FROM source_items WHERE state = 'live'"

REFUSAL = "INSERT INTO attempts SELECT 'att_01KJR4T4WJTX152K9RR434TBVX', '{}', '{}', {}, NULL, 0, batch FROM meta"

DAMAGES: dict[DatabaseKind, dict[str, str]] = {
    "counters": {
        "counters that are gone": "DELETE FROM meta",
        "an erasure that never ends": "UPDATE meta SET erasing = 1",
        "a batch before the first": "UPDATE meta SET batch = -1",
        "an epoch without a next": "UPDATE meta SET epoch = 9223372036854775807",
        "a clock at its end": "UPDATE meta SET hlc = 9223372036854775807",
        "a clock that counts backwards": "UPDATE meta SET hlc = -1",
        "a batch that is covered before it is made": "UPDATE meta SET covered_batch = batch + 1",
        "a cover since no instant": "UPDATE meta SET covered_at = 'garbage'",
        "a cover since a day that is none": "UPDATE meta SET covered_at = '2026-02-30T08:00:00.000000000Z'",
        "a cover since the far future": "UPDATE meta SET covered_at = '9999-01-01T00:00:00.000000000Z'",
        "a cover since a day": "UPDATE meta SET covered_at = '2026-02-03'",
        "a row too many that is held": "UPDATE meta SET held_rows = held_rows + 1",
        "bytes that are held and not counted": "UPDATE meta SET held_bytes = held_bytes - 1",
    },
    "index": {
        "an index row without its revision": "INSERT INTO claim_fts (rowid, statement) VALUES (9001, 'x')",
        "an index row without its chunk": "INSERT INTO artifact_fts (rowid, title) VALUES (9001, 'x')",
        "an index row of a dropped projection": """
            INSERT INTO projection_fts (rowid, text) SELECT row_id, text FROM projections
            WHERE status = 'dropped'
        """,
        "a claim revision without its index row": """
            INSERT INTO claim_fts (claim_fts, rowid, statement, cjk, terms)
            SELECT 'delete', row_id, lower(statement), '', 'the note say 5' FROM claim_revisions
            WHERE revision_number = 2
        """,
        "a chunk without its index row": f"""
            INSERT INTO artifact_fts (artifact_fts, rowid, title, body, title_cjk, body_cjk, title_terms, body_terms)
            SELECT 'delete', row_id, 'draft', 'to be forgotten', '', '', 'draft', 'to be forgotten'
            FROM artifact_chunks WHERE revision_row = ({DRAFT})
        """,
        "an active projection without its index row": """
            INSERT INTO projection_fts (projection_fts, rowid, text, cjk, terms)
            SELECT 'delete', row_id, text, '', 'green iron glaze' FROM projections WHERE status = 'active'
        """,
        **{f"postings of a row of {name} whose size is gone": f"DELETE FROM {name}_docsize" for name in INDEXES},
        **{
            f"a size in {name} without postings": f"""
                INSERT INTO {name}_docsize SELECT 9001, sz FROM {name}_docsize LIMIT 1
            """
            for name in INDEXES
        },
        "a word of an artifact that no misspelled one is compared with": """
            DELETE FROM words WHERE word = 'celadon'
        """,
        "a word of a claim that no misspelled one is compared with": "DELETE FROM words WHERE word = 'stopped'",
    },
    "database": {
        "an inverted index in ruins": """
            UPDATE claim_fts_data SET block = zeroblob(length(block)) WHERE id = (SELECT max(id)
            FROM claim_fts_data)
        """,
    },
    "chunks": {
        "a hole between two chunks": f"""
            UPDATE artifact_chunks SET start_byte = start_byte + 1 WHERE revision_row = ({LONG})
            AND ordinal = 2
        """,
        "a chunk that is gone": f"DELETE FROM artifact_chunks WHERE revision_row = ({LONG}) AND ordinal = 3",
        "a last chunk that is gone": f"""
            DELETE FROM artifact_chunks WHERE row_id = (SELECT max(row_id) FROM artifact_chunks
            WHERE revision_row = ({LONG}))
        """,
        "chunks of which none is left": "DELETE FROM artifact_chunks WHERE revision_row = 1",
        "an empty chunk beside others": f"""
            INSERT INTO artifact_chunks
            SELECT 9001, revision_row, max(ordinal) + 1, max(end_byte), max(end_byte), '' FROM artifact_chunks
            WHERE revision_row = ({LONG})
        """,
        "a chunk without its text": f"""
            UPDATE artifact_chunks SET text = NULL WHERE revision_row = ({LONG}) AND ordinal = 0
        """,
        "a chunk with another text of that length": f"""
            UPDATE artifact_chunks SET text = 'x' || substr(text, 2) WHERE revision_row = ({LONG})
            AND ordinal = 0
        """,
        "a text that was indexed by title only": "UPDATE artifact_chunks SET end_byte = 0 WHERE revision_row = 1",
    },
    "body": {
        "another body of that size": "UPDATE artifact_revisions SET body = zeroblob(length(body)) WHERE row_id = 1",
    },
    "revision": {
        "a large body in the row": f"UPDATE artifact_revisions SET body = zeroblob(9) WHERE row_id = ({LONG})",
        "an artifact that lost its first revision": """
            UPDATE artifact_revisions SET revision_number = 7 WHERE row_id = 1
        """,
        "a claim that lost its only revision": """
            DELETE FROM claim_revisions WHERE claim_row = (SELECT row_id FROM claims
            WHERE status = 'superseded')
        """,
        "a head that points at an older revision": "UPDATE artifacts SET head_row = row_id WHERE revision_count = 2",
        "a head that points at another's revision": """
            UPDATE claims SET head_row = (SELECT max(row_id) FROM claim_revisions)
        """,
        "a revision count that is off": "UPDATE claims SET revision_count = revision_count + 1",
        "a revision that ended too early": "UPDATE artifact_revisions SET sys_to = sys_to - 1 WHERE sys_to IS NOT NULL",
        "a claim revision that never ended": "UPDATE claim_revisions SET sys_to = NULL WHERE sys_to IS NOT NULL",
        "a forgotten artifact that still is the truth": "UPDATE artifacts SET sys_to = NULL WHERE status = 'forgotten'",
        "a live claim that stopped being the truth": "UPDATE claims SET sys_to = 999 WHERE status = 'active'",
    },
    "blob": {
        "a blob digest that nothing is stored under": f"""
            UPDATE artifact_revisions SET blob_hash = zeroblob(32) WHERE row_id = ({LONG})
        """,
    },
    "foreign_key": {
        "a revision of no artifact": "UPDATE artifact_revisions SET artifact_row = 9001 WHERE row_id = 1",
        "evidence of no revision": "UPDATE claim_evidence SET artifact_revision_row = 9001",
        "a case of no relation": f"UPDATE conflict_cases SET relation_row = 9001 WHERE case_sequence = ({OPEN})",
    },
    "evidence": {
        "evidence beyond the end": f"UPDATE claim_evidence SET end_byte = {len(LONG_TEXT) + 1}",
        "evidence before the beginning": "UPDATE claim_evidence SET start_byte = -1",
        "evidence from the future": """
            UPDATE claim_evidence SET artifact_revision_row = (SELECT max(row_id) FROM artifact_revisions)
        """,
        "evidence whose first item is gone": "UPDATE claim_evidence SET ordinal = 1",
    },
    "relation": {
        "a relation whose source is gone": "UPDATE relations SET source_id = 'clm_gone' WHERE relation = 'supports'",
        "a relation whose target is gone": "UPDATE relations SET target_id = 'art_gone' WHERE relation = 'supports'",
    },
    "conflict_case": {
        "a relation that turned round": f"""
            UPDATE relations SET source_id = target_id, target_id = source_id WHERE row_id =
            (SELECT relation_row FROM conflict_cases WHERE case_sequence = ({OPEN}))
        """,
        "a case over another claim's revision": f"""
            UPDATE conflict_cases SET source_revision_row = target_revision_row WHERE case_sequence = ({OPEN})
        """,
        "a case that was closed without an event": f"""
            UPDATE conflict_cases SET state = 'stale' WHERE case_sequence = ({OPEN})
        """,
        "a case that was opened again without an event": f"""
            UPDATE conflict_cases SET state = 'open' WHERE case_sequence = ({RESOLVED})
        """,
        "a case whose events are gone": f"DELETE FROM conflict_events WHERE case_sequence = ({STALE})",
        "a case that was closed twice": f"""
            INSERT INTO conflict_events (event_id, case_sequence, event, state_reason, commit_seq, created_at)
            SELECT 'cevt_again', case_sequence, event, state_reason, commit_seq, created_at
            FROM conflict_events WHERE case_sequence = ({STALE}) AND event = 'stale'
        """,
        "a case opened at another commit": f"""
            UPDATE conflict_cases SET opened_commit_seq = opened_commit_seq + 1 WHERE case_sequence = ({OPEN})
        """,
        "a case with another reason": f"UPDATE conflict_cases SET state_reason = 'x' WHERE case_sequence = ({OPEN})",
        "a case that a commit of another kind closed": f"""
            UPDATE conflict_events SET commit_seq = 1 WHERE case_sequence = ({RESOLVED})
            AND event = 'resolved'
        """,
        "cases in another order than they were opened": f"""
            UPDATE conflict_cases SET case_sequence = 9001 WHERE case_sequence = ({OPEN})
        """,
        "an open case over a claim that was retracted": f"""
            UPDATE claims SET status = 'retracted', retraction_reason = 'x' WHERE row_id = ({CONFLICTED})
        """,
        "a stale case over current revisions": f"""
            DELETE FROM conflict_cases WHERE case_sequence > ({STALE});
            UPDATE conflict_cases SET (source_revision_row, target_revision_row) =
            (SELECT s.head_row, t.head_row FROM claims s, claims t WHERE s.row_id = source_claim_row
            AND t.row_id = target_claim_row) WHERE case_sequence = ({STALE})
        """,
        "a resolved case between live claims": """
            UPDATE claims SET status = 'active', retraction_reason = NULL WHERE status = 'retracted'
        """,
        "a live contradiction without an open case": f"DELETE FROM conflict_cases WHERE case_sequence = ({OPEN})",
    },
    "claim_status": {
        "a claim in conflict that says it is not": f"UPDATE claims SET status = 'active' WHERE row_id = ({CONFLICTED})",
        "a claim in no conflict that says it is": "UPDATE claims SET status = 'conflicted' WHERE status = 'active'",
        "a superseded claim that is live again": "UPDATE claims SET status = 'active' WHERE status = 'superseded'",
        "a claim that nothing supersedes": "DELETE FROM relations WHERE relation = 'supersedes'",
    },
    "source_item": {
        "an item that names another artifact's revision": f"""
            UPDATE source_items SET artifact_row = 1 WHERE row_id = ({LIVE_ITEM})
        """,
        "a withdrawn item whose artifact lives": """
            UPDATE source_items SET artifact_row = 1, artifact_revision_row = 1 WHERE state = 'withdrawn'
        """,
        "a live item whose artifact was withdrawn": """
            UPDATE source_items SET state = 'live', withdrawn_at = NULL, withdrawal_reason = NULL
            WHERE state = 'withdrawn'
        """,
        "an item younger than its source's last commit": "UPDATE sources SET commit_seq = row_id",
    },
    "episode": {
        "an episode that lost its first version": f"DELETE FROM episodes WHERE row_id = ({STANDUP})",
        "an episode without a current version": f"""
            DELETE FROM episodes WHERE artifact_row = ({STANDUP}) AND sys_to IS NULL
        """,
        "a version of another artifact": f"UPDATE episodes SET artifact_row = 1 WHERE row_id = ({STANDUP})",
        "a version that ended too late": f"UPDATE episodes SET sys_to = sys_to + 1 WHERE row_id = ({STANDUP})",
        "a version that ended before it began": f"UPDATE episodes SET sys_to = row_id WHERE row_id = ({STANDUP})",
        "a forgotten episode that still is the truth": f"UPDATE episodes SET sys_to = NULL WHERE row_id = ({RUMOUR})",
        "two episodes behind one id, at one time": f"""
            UPDATE episodes SET episode_id = (SELECT episode_id FROM episodes WHERE row_id = ({STANDUP})),
                sys_to = 9001 WHERE row_id = ({RUMOUR});
            UPDATE episodes SET row_id = 9001 WHERE artifact_row = ({STANDUP}) AND sys_to IS NULL
        """,
        "metadata in ruins": f"UPDATE episodes SET metadata = '[]' WHERE row_id = ({STANDUP})",
        "a preview that was used before it was made": """
            INSERT INTO forget_previews SELECT commit_seq, '{}', 1, '2026-02-03', 1 FROM meta
        """,
        "a preview that is yet to be used": "INSERT INTO forget_previews VALUES (1, '{}', 1, '2026-02-03', 9001)",
    },
    "node": {
        "a file of a bundle that is not searched": "DELETE FROM okf_nodes",
        "a node of no bundle": "UPDATE okf_nodes SET bundle = 9001",
        "postings of no node": "INSERT INTO okf_postings VALUES (1, 'celadon', 9001, 1, 1)",
        "edges of no node": "INSERT INTO okf_edges VALUES (9001, 0, 1, 'about', 0, 'concepts/kiln')",
        "a posting that is gone": "DELETE FROM okf_postings WHERE term = 'wide'",
        "a posting that counts too much": "UPDATE okf_postings SET frequency = 7 WHERE term = 'wide'",
        "an edge to somewhere else": "UPDATE okf_edges SET target_id = 'concepts/other'",
        "a title that nobody wrote": "UPDATE okf_nodes SET title = 'Another one'",
    },
    "derivation": {
        "a mark of a text that quotes nothing": """
            INSERT INTO derivations VALUES (1, '["memoree://artifact/a@b"]')
        """,
        "a mark of a revision without text": """
            UPDATE artifact_chunks SET end_byte = 0 WHERE revision_row = 1;
            INSERT INTO derivations VALUES (1, '[]')
        """,
        "a quotation without its mark": f"""
            UPDATE artifact_chunks SET text = (SELECT 'memoree://artifact/' || artifact_id || '@' || revision_id || ' '
            FROM artifacts JOIN artifact_revisions ON artifact_row = artifacts.row_id
            WHERE artifact_revisions.row_id = 1) WHERE revision_row = ({LONG}) AND ordinal = 1
        """,
    },
    "projection": {
        "a projection without evidence": "UPDATE projections SET evidence_spans = '[]'",
        "a projection beyond the end": f"UPDATE projections SET evidence_spans = '[[0,{len(LONG_TEXT) + 1}]]'",
        "a projection of overlapping spans": "UPDATE projections SET evidence_spans = '[[0,12],[11,20]]'",
        "a projection of an empty span": "UPDATE projections SET evidence_spans = '[[5,5]]'",
        "a projection whose spans are no list": "UPDATE projections SET evidence_spans = 'none'",
    },
    "events": {
        "a gap in the commit numbers": "DELETE FROM events WHERE commit_seq = 5",
        "a counter that lags behind": "UPDATE meta SET commit_seq = commit_seq - 1",
        "a counter that ran ahead": "UPDATE meta SET commit_seq = commit_seq + 1",
        "a clock that went back": "UPDATE events SET hlc = 1 WHERE commit_seq = 5",
        "an instant that went back": "UPDATE events SET created_at = '2020' WHERE commit_seq = 5",
        "an event at no instant": f"UPDATE events SET created_at = 'z' WHERE commit_seq = ({LAST_COMMIT})",
        "an event of the far future": f"""
            UPDATE events SET created_at = '9999-01-01T00:00:00.000000000Z' WHERE commit_seq = ({LAST_COMMIT})
        """,
        "a store whose clock is behind its last event": "UPDATE meta SET hlc = 1",
        "a revision of which no event tells": "UPDATE events SET revision_id = NULL WHERE commit_seq = 1",
        "an event that tells of another revision": "UPDATE events SET revision_id = 'arev_x' WHERE commit_seq = 1",
        "a claim revision of which no event tells": f"""
            UPDATE events SET revision_id = NULL WHERE commit_seq = ({CITING})
        """,
        "an event that tells of another claim": f"UPDATE events SET entity_id = 'clm_x' WHERE commit_seq = ({CITING})",
        "an event that tells of another relation": """
            UPDATE events SET payload = json_set(payload, '$.relation', 'supports')
            WHERE payload ->> 'relation' = 'supersedes'
        """,
        "an event of a relation that is gone": "DELETE FROM relations WHERE relation = 'supports'",
        "an event that leaves an artifact forgotten": """
            UPDATE events SET payload = json_set(payload, '$.status', 'active')
            WHERE operation = 'artifact.forget'
        """,
        "an event of an artifact that never was": """
            UPDATE events SET entity_type = 'artifact', entity_id = 'art_x', payload = '{"status":"forgotten"}'
            WHERE operation = 'feedback.record'
        """,
        "a source that no commit made": "UPDATE events SET entity_id = 'src_x' WHERE operation = 'source.register'",
        "a projection that no commit made": "UPDATE events SET entity_id = 'x' WHERE operation = 'projection.put'",
        "feedback that no commit made": "UPDATE events SET entity_id = 'x' WHERE operation = 'feedback.record'",
        "an item that no commit made": "UPDATE events SET entity_id = 'x' WHERE operation = 'source.ingest'",
        "a source that is gone": "DELETE FROM sources",
        "an item that is gone": "DELETE FROM source_items",
        "a projection that is gone": "DELETE FROM projections",
        "feedback that is gone": "DELETE FROM feedback",
        "an erasure that no commit made": "INSERT INTO erasures VALUES (1, 'ers_1', '2026-02-03')",
        "an erasure that is gone": "UPDATE events SET entity_type = 'erasure' WHERE operation = 'feedback.record'",
        "a source of the future": "UPDATE sources SET commit_seq = 9001",
        "an item of the future": "UPDATE source_items SET commit_seq = 9001",
        "a projection of the future": "UPDATE projections SET commit_seq = 9001",
    },
    "erasure": {
        "an erasure that erased nothing": "INSERT INTO erasures VALUES (1, 'ers_1', '2026-02-03')",
        "artifacts and claims that an erasure left whole": """
            INSERT INTO erasures VALUES (1, 'ers_1', '2026-02-03');
            UPDATE artifacts SET erasure_row = 1; UPDATE claims SET erasure_row = 1;
            UPDATE relations SET metadata = '{"because": "so"}';
            UPDATE feedback SET note = (SELECT claim_id FROM claims LIMIT 1)
        """,
        "an episode of which an erasure left the versions": f"""
            INSERT INTO erasures VALUES (1, 'ers_1', '2026-02-03');
            UPDATE artifacts SET erasure_row = 1, kind = 'erased' WHERE row_id = ({RUMOUR})
        """,
    },
    "outcome": {
        "an idempotency record of no commit": """
            INSERT INTO idempotency (key, operation, fingerprint, commit_seq, result)
            VALUES ('k', 'x', x'00', 9001, '{}')
        """,
        "an idempotency record of another operation": """
            UPDATE idempotency SET operation = 'claim.retract' WHERE commit_seq = 1
        """,
        "a commit whose idempotency record is gone": "DELETE FROM idempotency WHERE commit_seq = 1",
        "an outcome that points at no record": """
            UPDATE attempts SET idempotency_row = 9001 WHERE attempt_id = (SELECT min(attempt_id)
            FROM attempts)
        """,
        "an outcome of a batch to come": """
            UPDATE attempts SET batch = 9001 WHERE attempt_id = (SELECT min(attempt_id) FROM attempts)
        """,
        "a refusal with a code that does not exist": REFUSAL.format("refused", "BOGUS", """'{"code":"BOGUS"}'"""),
        "an expiry with the code of something else": REFUSAL.format(
            "expired", "NOT_FOUND", """'{"code":"NOT_FOUND"}'"""
        ),
        "a refusal that was sent with another code": REFUSAL.format(
            "refused", "NOT_FOUND", """'{"code":"FORBIDDEN"}'"""
        ),
        "a refusal in ruins": REFUSAL.format("refused", "NOT_FOUND", "'{'"),
        "a refusal of which nothing is left": REFUSAL.format("refused", "NOT_FOUND", "NULL"),
        "an attempt that no client made": "UPDATE attempts SET attempt_id = 'att_x' WHERE batch = 1",
        "two attempts that made one record": """
            INSERT INTO attempts
            SELECT 'att_01KJR4T4WJTX152K9RR434TBVX', status, code, error, idempotency_row, replayed, batch FROM attempts
            WHERE status = 'applied' LIMIT 1
        """,
    },
    "integrity_sum": {
        "a title that was rewritten": "UPDATE artifact_revisions SET title = 'x' WHERE row_id = 1",
        "a statement that was rewritten": "UPDATE claim_revisions SET statement = 'x'",
        "a cursor that moved by itself": "UPDATE sources SET cursor = 'c-999'",
        "a sum that was changed": "UPDATE meta SET integrity = zeroblob(32)",
    },
}
