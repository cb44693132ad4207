-- The store of one tenant. Instants are text of fixed width (see memoree.clock), digests are raw BLAKE3 bytes.
-- sys_from / sys_to are commit numbers: the row was the current truth from the one, until before the other.

CREATE TABLE meta (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    schema_version  INTEGER NOT NULL,
    history         INTEGER NOT NULL,   -- goes up when a restore replaces the past
    epoch           INTEGER NOT NULL,   -- the writer's reign that made this copy
    batch           INTEGER NOT NULL,   -- group commits
    commit_seq      INTEGER NOT NULL,   -- state-changing mutations
    hlc             INTEGER NOT NULL,   -- hybrid logical clock of the newest commit
    integrity       BLOB    NOT NULL,   -- order-independent sum over every revision and lifecycle entry, 32 bytes
    covered_batch   INTEGER NOT NULL,   -- a batch that head was seen to cover ...
    covered_at      TEXT    NOT NULL,   -- ... since this instant: pruning counts from here
    erasing         INTEGER NOT NULL    -- 1 only inside an erasure: lifts the immutability triggers
) STRICT;

CREATE TABLE artifacts (
    row_id            INTEGER PRIMARY KEY,
    artifact_id       TEXT    NOT NULL UNIQUE,
    kind              TEXT    NOT NULL,
    workspace_id      TEXT    NOT NULL,
    project_id        TEXT    NOT NULL,
    task_id           TEXT,
    component         TEXT,
    status            TEXT    NOT NULL CHECK (status IN ('active', 'forgotten')),
    forgotten_reason  TEXT,
    head_row          INTEGER NOT NULL,
    revision_count    INTEGER NOT NULL,
    created_at        TEXT    NOT NULL,
    sys_from          INTEGER NOT NULL,
    sys_to            INTEGER,
    CHECK ((status = 'forgotten') = (forgotten_reason IS NOT NULL))
) STRICT;

CREATE TABLE artifact_revisions (
    row_id           INTEGER PRIMARY KEY,
    revision_id      TEXT    NOT NULL UNIQUE,
    artifact_row     INTEGER NOT NULL REFERENCES artifacts (row_id) DEFERRABLE INITIALLY DEFERRED,
    revision_number  INTEGER NOT NULL,
    title            TEXT    NOT NULL,
    media_type       TEXT    NOT NULL,
    blob_hash        BLOB    NOT NULL,
    size_bytes       INTEGER NOT NULL,
    body             BLOB,              -- the bytes, when there are at most 16 KiB of them; else they are a blob
    provenance       TEXT    NOT NULL,
    actor            TEXT,
    created_at       TEXT    NOT NULL,
    sys_from         INTEGER NOT NULL,
    sys_to           INTEGER,
    UNIQUE (artifact_row, revision_number),
    CHECK (length(blob_hash) = 32)
) STRICT;

CREATE INDEX artifact_revisions_in_blobs ON artifact_revisions (blob_hash) WHERE body IS NULL;

-- Exact slices of a text body: contiguous, character-aligned, every byte once. A revision without indexable
-- text has the single empty slice 0-0, so that its title is found.
CREATE TABLE artifact_chunks (
    row_id        INTEGER PRIMARY KEY,
    revision_row  INTEGER NOT NULL REFERENCES artifact_revisions (row_id),
    ordinal       INTEGER NOT NULL,
    start_byte    INTEGER NOT NULL,
    end_byte      INTEGER NOT NULL,
    text          TEXT,                 -- NULL where the revision's inline body holds it
    UNIQUE (revision_row, ordinal)
) STRICT;

-- One row per chunk. Scripts written without spaces are indexed as pairs of characters in columns of their own.
CREATE VIRTUAL TABLE artifact_fts USING fts5 (
    title, body, title_cjk, body_cjk,
    content = '', tokenize = 'unicode61 remove_diacritics 2'
);

CREATE TABLE claims (
    row_id             INTEGER PRIMARY KEY,
    claim_id           TEXT    NOT NULL UNIQUE,
    claim_type         TEXT    NOT NULL,
    workspace_id       TEXT    NOT NULL,
    project_id         TEXT    NOT NULL,
    task_id            TEXT,
    component          TEXT,
    status             TEXT    NOT NULL CHECK (status IN ('active', 'superseded', 'retracted', 'conflicted')),
    retraction_reason  TEXT,
    valid_from         TEXT,
    valid_until        TEXT,
    head_row           INTEGER NOT NULL,
    revision_count     INTEGER NOT NULL,
    created_at         TEXT    NOT NULL,
    sys_from           INTEGER NOT NULL,
    sys_to             INTEGER,
    CHECK ((status = 'retracted') = (retraction_reason IS NOT NULL))
) STRICT;

CREATE TABLE claim_revisions (
    row_id           INTEGER PRIMARY KEY,
    revision_id      TEXT    NOT NULL UNIQUE,
    claim_row        INTEGER NOT NULL REFERENCES claims (row_id) DEFERRABLE INITIALLY DEFERRED,
    revision_number  INTEGER NOT NULL,
    statement        TEXT    NOT NULL,
    confidence       REAL,
    actor            TEXT,
    created_at       TEXT    NOT NULL,
    sys_from         INTEGER NOT NULL,
    sys_to           INTEGER,
    UNIQUE (claim_row, revision_number)
) STRICT;

CREATE TABLE claim_evidence (
    claim_revision_row     INTEGER NOT NULL REFERENCES claim_revisions (row_id),
    ordinal                INTEGER NOT NULL,
    artifact_revision_row  INTEGER NOT NULL REFERENCES artifact_revisions (row_id),
    start_byte             INTEGER,
    end_byte               INTEGER,
    PRIMARY KEY (claim_revision_row, ordinal),
    CHECK ((start_byte IS NULL) = (end_byte IS NULL)),
    CHECK (start_byte < end_byte)
) STRICT, WITHOUT ROWID;

CREATE INDEX claim_evidence_by_artifact ON claim_evidence (artifact_revision_row);

CREATE VIRTUAL TABLE claim_fts USING fts5 (
    statement, cjk,
    content = '', tokenize = 'unicode61 remove_diacritics 2'
);

CREATE VIRTUAL TABLE artifact_vocabulary USING fts5vocab (artifact_fts, row);
CREATE VIRTUAL TABLE claim_vocabulary USING fts5vocab (claim_fts, row);

-- One audit event per consumed commit number; also the map between commit numbers and the hybrid logical clock.
CREATE TABLE events (
    commit_seq    INTEGER PRIMARY KEY,
    event_id      TEXT    NOT NULL,
    hlc           INTEGER NOT NULL,
    operation     TEXT    NOT NULL,
    entity_type   TEXT    NOT NULL,
    entity_id     TEXT    NOT NULL,
    revision_id   TEXT,
    actor         TEXT,
    payload       TEXT    NOT NULL,
    created_at    TEXT    NOT NULL
) STRICT;

-- Successful outcomes, by namespaced key; never expire (machine protocol §1.7).
CREATE TABLE idempotency (
    row_id       INTEGER PRIMARY KEY,
    key          TEXT    NOT NULL UNIQUE,
    operation    TEXT    NOT NULL,
    fingerprint  BLOB    NOT NULL,
    commit_seq   INTEGER NOT NULL,
    result       TEXT    NOT NULL
) STRICT;

-- What became of each attempt, decided once. An applied one points at its idempotency record.
CREATE TABLE attempts (
    attempt_id       TEXT    PRIMARY KEY,
    status           TEXT    NOT NULL CHECK (status IN ('applied', 'refused', 'expired')),
    code             TEXT,
    error            TEXT,              -- the refusal as sent; pruned after an hour
    idempotency_row  INTEGER REFERENCES idempotency (row_id),
    replayed         INTEGER NOT NULL,
    batch            INTEGER NOT NULL,
    CHECK ((status = 'applied') = (idempotency_row IS NOT NULL)),
    CHECK ((status = 'applied') = (code IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX attempts_with_error ON attempts (batch) WHERE error IS NOT NULL;

-- Digests that garbage collection is about to remove: commands citing them are refused meanwhile.
CREATE TABLE condemned_blobs (
    digest        BLOB    PRIMARY KEY,
    condemned_at  TEXT    NOT NULL,
    commit_seq    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER artifact_revisions_are_immutable
BEFORE UPDATE OF revision_id, artifact_row, revision_number, title, media_type, blob_hash, size_bytes, body,
    provenance, actor, created_at, sys_from ON artifact_revisions
WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'artifact revisions are immutable'); END;

CREATE TRIGGER artifact_revisions_stay
BEFORE DELETE ON artifact_revisions WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'artifact revisions are never deleted'); END;

CREATE TRIGGER claim_revisions_are_immutable
BEFORE UPDATE OF revision_id, claim_row, revision_number, statement, confidence, actor, created_at, sys_from
    ON claim_revisions
WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'claim revisions are immutable'); END;

CREATE TRIGGER claim_revisions_stay
BEFORE DELETE ON claim_revisions WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'claim revisions are never deleted'); END;

CREATE TRIGGER claim_evidence_is_immutable
BEFORE UPDATE ON claim_evidence WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'claim evidence is immutable'); END;

CREATE TRIGGER claim_evidence_stays
BEFORE DELETE ON claim_evidence WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'claim evidence is never deleted'); END;

CREATE TRIGGER events_are_immutable BEFORE UPDATE ON events
WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'audit events are immutable'); END;

CREATE TRIGGER events_stay BEFORE DELETE ON events
BEGIN SELECT raise(ABORT, 'audit events are never deleted'); END;
