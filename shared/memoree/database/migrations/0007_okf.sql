-- OKF bundles. Everything here is derived from the current revisions of the nodes' artifacts and can be made again;
-- a node leaves when its artifact is forgotten or erased. A bundle is the row of its source.

CREATE TABLE okf_nodes (
    row_id         INTEGER PRIMARY KEY,  -- the artifact
    bundle         INTEGER NOT NULL,
    revision_row   INTEGER NOT NULL,
    node_id        TEXT    NOT NULL,     -- the path in the bundle, without its ending
    tier           TEXT    NOT NULL CHECK (tier IN ('canon', 'mirror', 'inbox', 'secret', 'reserved')),
    type           TEXT    NOT NULL,
    title          TEXT    NOT NULL,
    timestamp      INTEGER,              -- instants are milliseconds since 1970, NULL where none can be read
    valid_from     INTEGER,
    invalid_at     INTEGER,
    deprecated_on  TEXT,                 -- NULL: it is not deprecated
    importance     REAL    NOT NULL,     -- a factor
    authority      REAL,
    length         INTEGER NOT NULL,     -- tokens
    sources        TEXT    NOT NULL,     -- JSON array of strings
    fields         TEXT    NOT NULL,     -- the front matter, as JSON
    terms          TEXT    NOT NULL,     -- what it has in okf_postings, as JSON array
    UNIQUE (bundle, node_id)
) STRICT;

CREATE INDEX okf_pool ON okf_nodes (bundle, tier, length);
CREATE INDEX okf_bounded ON okf_nodes (bundle) WHERE valid_from IS NOT NULL OR invalid_at IS NOT NULL;

-- How often a node has a token. Reserved nodes have none.
CREATE TABLE okf_postings (
    bundle     INTEGER NOT NULL,
    term       TEXT    NOT NULL,
    node_row   INTEGER NOT NULL,
    frequency  INTEGER NOT NULL,
    length     INTEGER NOT NULL,         -- of the node
    PRIMARY KEY (bundle, term, node_row)
) STRICT, WITHOUT ROWID;

-- Relations, supersession and links of the body, in the order in which they are written.
CREATE TABLE okf_edges (
    node_row     INTEGER NOT NULL,
    ordinal      INTEGER NOT NULL,
    bundle       INTEGER NOT NULL,
    kind         TEXT    NOT NULL,       -- canonical; supersedes, superseded_by and cites among them
    is_reversed  INTEGER NOT NULL,
    target_id    TEXT    NOT NULL,
    PRIMARY KEY (node_row, ordinal)
) STRICT, WITHOUT ROWID;

CREATE INDEX okf_edges_by_target ON okf_edges (bundle, target_id, kind);
CREATE INDEX okf_supersession ON okf_edges (bundle, kind) WHERE kind IN ('supersedes', 'superseded_by');

-- Events of the ledger, by topic.
CREATE INDEX ledger_events ON events (entity_id) WHERE entity_type = 'okf_topic';

-- Entries of the inbox, newest first.
CREATE INDEX okf_inbox ON artifacts (workspace_id, project_id) WHERE kind = 'okf.inbox';
CREATE INDEX ledger_refs ON events (payload ->> 'ref') WHERE entity_type = 'okf_topic';
