-- Quotas. What a tenant holds is counted with the integrity sum: revisions of artifacts and claims that were not
-- erased, relations, projections, feedback, sources and their items; bytes are those of artifact revisions, each
-- counted once however many share a blob.

ALTER TABLE meta ADD COLUMN held_rows INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN held_bytes INTEGER NOT NULL DEFAULT 0;

-- What an operator allows this tenant. No row, or NULL: what the deployment allows every tenant.
CREATE TABLE quota (
    row_id           INTEGER PRIMARY KEY CHECK (row_id = 1),
    rows_max         INTEGER,
    bytes_max        INTEGER,
    rate_per_second  REAL,
    rate_burst       INTEGER,
    commit_seq       INTEGER NOT NULL    -- that set it
) STRICT;

UPDATE meta SET
    held_rows = (SELECT count(*) FROM artifact_revisions r JOIN artifacts a ON a.row_id = r.artifact_row
            WHERE a.erasure_row IS NULL)
        + (SELECT count(*) FROM claim_revisions r JOIN claims c ON c.row_id = r.claim_row WHERE c.erasure_row IS NULL)
        + (SELECT count(*) FROM relations) + (SELECT count(*) FROM projections) + (SELECT count(*) FROM feedback)
        + (SELECT count(*) FROM sources) + (SELECT count(*) FROM source_items),
    held_bytes = (SELECT coalesce(sum(r.size_bytes), 0) FROM artifact_revisions r
            JOIN artifacts a ON a.row_id = r.artifact_row
            WHERE a.erasure_row IS NULL);
