-- The rest of the machine protocol: relations and conflict cases, sources, projections, feedback.
-- Where a row id is called a commit, the row was made by that commit, which makes at most one row of its kind.

-- Typed edges. Ids, not rows: an edge joins entities of two kinds.
CREATE TABLE relations (
    row_id        INTEGER PRIMARY KEY,  -- the commit
    relation_id   TEXT    NOT NULL UNIQUE,
    source_type   TEXT    NOT NULL CHECK (source_type IN ('artifact', 'claim')),
    source_id     TEXT    NOT NULL,
    relation      TEXT    NOT NULL CHECK (relation IN (
        'derived_from', 'supports', 'contradicts', 'supersedes', 'references', 'duplicates')),
    target_type   TEXT    NOT NULL CHECK (target_type IN ('artifact', 'claim')),
    target_id     TEXT    NOT NULL,
    metadata      TEXT    NOT NULL,
    workspace_id  TEXT    NOT NULL,
    project_id    TEXT    NOT NULL,
    task_id       TEXT,
    component     TEXT,
    created_at    TEXT    NOT NULL,
    UNIQUE (source_id, relation, target_id, source_type, target_type)
) STRICT;

CREATE INDEX relations_by_source ON relations (source_id, row_id);
CREATE INDEX relations_by_target ON relations (target_id, row_id);

-- A contradiction between two revisions. `case_sequence` grows in creation order; a case is never deleted.
CREATE TABLE conflict_cases (
    case_sequence        INTEGER PRIMARY KEY,
    case_id              TEXT    NOT NULL UNIQUE,
    relation_row         INTEGER NOT NULL REFERENCES relations (row_id),
    source_claim_row     INTEGER NOT NULL REFERENCES claims (row_id),
    source_revision_row  INTEGER NOT NULL REFERENCES claim_revisions (row_id) DEFERRABLE INITIALLY DEFERRED,
    target_claim_row     INTEGER NOT NULL REFERENCES claims (row_id),
    target_revision_row  INTEGER NOT NULL REFERENCES claim_revisions (row_id) DEFERRABLE INITIALLY DEFERRED,
    state                TEXT    NOT NULL CHECK (state IN ('open', 'stale', 'resolved')),
    state_reason         TEXT    NOT NULL,
    opened_commit_seq    INTEGER NOT NULL,
    opened_at            TEXT    NOT NULL,
    updated_at           TEXT    NOT NULL,
    UNIQUE (relation_row, source_revision_row, target_revision_row)
) STRICT;

CREATE UNIQUE INDEX one_open_case_per_relation ON conflict_cases (relation_row) WHERE state = 'open';
CREATE INDEX open_cases_by_source ON conflict_cases (source_claim_row) WHERE state = 'open';
CREATE INDEX open_cases_by_target ON conflict_cases (target_claim_row) WHERE state = 'open';
CREATE INDEX unresolved_cases ON conflict_cases (case_sequence) WHERE state IN ('open', 'stale');

CREATE TABLE conflict_events (
    row_id         INTEGER PRIMARY KEY,
    event_id       TEXT    NOT NULL UNIQUE,
    case_sequence  INTEGER NOT NULL REFERENCES conflict_cases (case_sequence),
    event          TEXT    NOT NULL CHECK (event IN ('opened', 'stale', 'resolved')),
    state_reason   TEXT    NOT NULL,
    commit_seq     INTEGER NOT NULL,
    created_at     TEXT    NOT NULL
) STRICT;

CREATE INDEX conflict_events_by_case ON conflict_events (case_sequence, row_id);

-- External systems, and what they delivered. The rows hold the present; the past is in the audit events.
CREATE TABLE sources (
    row_id            INTEGER PRIMARY KEY,  -- the commit that registered it
    source_id         TEXT    NOT NULL UNIQUE,
    name              TEXT    NOT NULL,
    kind              TEXT    NOT NULL,
    locator           TEXT,
    metadata          TEXT    NOT NULL,
    workspace_id      TEXT    NOT NULL,
    project_id        TEXT    NOT NULL,
    task_id           TEXT,
    component         TEXT,
    health            TEXT    NOT NULL CHECK (health IN ('unknown', 'healthy', 'degraded', 'error')),
    health_message    TEXT,
    cursor            TEXT,
    last_observed_at  TEXT,
    created_at        TEXT    NOT NULL,
    updated_at        TEXT    NOT NULL,
    commit_seq        INTEGER NOT NULL      -- the last commit that touched it
) STRICT;

-- NULL is no task of its own: a source of the project and one of a task may share a name.
CREATE UNIQUE INDEX source_names ON sources (workspace_id, project_id, coalesce(task_id, ''), name);

CREATE TABLE source_items (
    row_id                 INTEGER PRIMARY KEY,  -- the commit that delivered it first
    source_row             INTEGER NOT NULL REFERENCES sources (row_id),
    external_id            TEXT    NOT NULL,
    external_revision      TEXT    NOT NULL,
    payload_digest         BLOB    NOT NULL CHECK (length(payload_digest) = 32),
    artifact_row           INTEGER NOT NULL REFERENCES artifacts (row_id),
    artifact_revision_row  INTEGER NOT NULL REFERENCES artifact_revisions (row_id),
    state                  TEXT    NOT NULL CHECK (state IN ('live', 'withdrawn')),
    observed_at            TEXT    NOT NULL,
    withdrawn_at           TEXT,
    withdrawal_reason      TEXT,
    updated_at             TEXT    NOT NULL,
    commit_seq             INTEGER NOT NULL,     -- the last commit that touched it
    UNIQUE (source_row, external_id),
    CHECK ((state = 'withdrawn') = (withdrawn_at IS NOT NULL)),
    CHECK ((state = 'withdrawn') = (withdrawal_reason IS NOT NULL))
) STRICT;

CREATE INDEX source_items_by_artifact ON source_items (artifact_row);

-- Derived text that helps to find a revision, bound to exact spans of it. `evidence_spans` is JSON: [[start, end], ...].
CREATE TABLE projections (
    row_id             INTEGER PRIMARY KEY,  -- the commit that made it first
    projection_id      TEXT    NOT NULL UNIQUE,
    revision_row       INTEGER NOT NULL REFERENCES artifact_revisions (row_id),
    projection_key     TEXT    NOT NULL,
    kind               TEXT    NOT NULL,
    text               TEXT    NOT NULL,
    evidence_spans     TEXT    NOT NULL,
    generator          TEXT    NOT NULL,
    generator_version  TEXT    NOT NULL,
    generator_digest   TEXT    NOT NULL,
    metadata           TEXT    NOT NULL,
    status             TEXT    NOT NULL CHECK (status IN ('active', 'dropped')),
    dropped_reason     TEXT,
    actor              TEXT,
    created_at         TEXT    NOT NULL,
    updated_at         TEXT    NOT NULL,
    commit_seq         INTEGER NOT NULL,     -- the last commit that touched it
    UNIQUE (revision_row, projection_key),
    CHECK ((status = 'dropped') = (dropped_reason IS NOT NULL))
) STRICT;

-- One row per active projection, under its row id.
CREATE VIRTUAL TABLE projection_fts USING fts5 (
    text, cjk,
    content = '', tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO projection_fts (projection_fts, rank) VALUES ('secure-delete', 1);

CREATE TABLE feedback (
    row_id             INTEGER PRIMARY KEY,  -- the commit
    feedback_id        TEXT    NOT NULL UNIQUE,
    outcome            TEXT    NOT NULL CHECK (outcome IN ('miss', 'useful', 'incorrect', 'stale')),
    query_fingerprint  TEXT    NOT NULL,
    retained_query     TEXT,
    citations          TEXT    NOT NULL,     -- JSON array of strings
    note               TEXT,
    actor              TEXT,
    workspace_id       TEXT    NOT NULL,
    project_id         TEXT    NOT NULL,
    task_id            TEXT,
    component          TEXT,
    created_at         TEXT    NOT NULL
) STRICT;

CREATE INDEX feedback_by_project ON feedback (workspace_id, project_id, row_id);

-- The random key of this store's query fingerprints, made on first use.
CREATE TABLE feedback_key (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    key  BLOB    NOT NULL CHECK (length(key) = 32)
) STRICT;

-- Lists of one project, newest first: an index ends in the row id, which is the commit that made the row.
CREATE INDEX artifacts_by_project ON artifacts (workspace_id, project_id);
CREATE INDEX claims_by_project ON claims (workspace_id, project_id);
CREATE INDEX relations_by_project ON relations (workspace_id, project_id);

CREATE TRIGGER relations_are_immutable BEFORE UPDATE ON relations WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'relations are immutable'); END;

CREATE TRIGGER relations_stay BEFORE DELETE ON relations WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'relations are never deleted'); END;

CREATE TRIGGER conflict_cases_keep_what_they_froze
BEFORE UPDATE OF case_sequence, case_id, relation_row, source_claim_row, source_revision_row, target_claim_row,
    target_revision_row, opened_commit_seq, opened_at ON conflict_cases
BEGIN SELECT raise(ABORT, 'a conflict case keeps the revisions it froze'); END;

CREATE TRIGGER closed_conflict_cases_are_final BEFORE UPDATE ON conflict_cases WHEN old.state <> 'open'
BEGIN SELECT raise(ABORT, 'a stale or resolved conflict case is final'); END;

CREATE TRIGGER conflict_cases_stay BEFORE DELETE ON conflict_cases WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'conflict cases are never deleted'); END;

CREATE TRIGGER conflict_events_are_immutable BEFORE UPDATE ON conflict_events
BEGIN SELECT raise(ABORT, 'conflict events are immutable'); END;

CREATE TRIGGER conflict_events_stay BEFORE DELETE ON conflict_events WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'conflict events are never deleted'); END;

CREATE TRIGGER feedback_is_immutable BEFORE UPDATE ON feedback WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'feedback is immutable'); END;
