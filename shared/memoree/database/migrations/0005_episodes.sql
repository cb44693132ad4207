-- Episodes of MemoryProtocol: what is behind an episode id, version by version. Each version is one revision of an
-- artifact of kind `episode`. A version is visible from its commit until before `sys_to`.

CREATE TABLE episodes (
    row_id        INTEGER PRIMARY KEY REFERENCES artifact_revisions (row_id),  -- the commit that made it
    episode_id    TEXT    NOT NULL,     -- a ULID, upper case
    artifact_row  INTEGER NOT NULL REFERENCES artifacts (row_id),
    source        TEXT    NOT NULL,
    t_ref         TEXT,                 -- as it was sent
    metadata      TEXT    NOT NULL,     -- JSON object
    sys_to        INTEGER               -- the commit that replaced or forgot it
) STRICT;

CREATE UNIQUE INDEX current_episodes ON episodes (episode_id) WHERE sys_to IS NULL;
CREATE INDEX episodes_by_id ON episodes (episode_id, row_id);
CREATE INDEX episodes_by_artifact ON episodes (artifact_row);
CREATE INDEX current_episodes_by_source ON episodes (source) WHERE sys_to IS NULL;

CREATE TRIGGER episodes_are_immutable
BEFORE UPDATE OF row_id, episode_id, artifact_row, source, t_ref, metadata ON episodes
BEGIN SELECT raise(ABORT, 'versions of an episode are immutable'); END;

CREATE TRIGGER episodes_stay BEFORE DELETE ON episodes WHEN (SELECT erasing FROM meta) = 0
BEGIN SELECT raise(ABORT, 'versions of an episode are never deleted'); END;

-- Previews of forgetting, by which a hard deletion is confirmed; each once.
CREATE TABLE forget_previews (
    row_id      INTEGER PRIMARY KEY,    -- the commit
    target      TEXT    NOT NULL,       -- JSON, in its canonical form
    matched     INTEGER NOT NULL,
    created_at  TEXT    NOT NULL,
    used_by     INTEGER                 -- the commit that deleted what was previewed
) STRICT;

-- What was stored as an episode before there were episode ids.
INSERT INTO episodes
SELECT r.row_id, substr(a.artifact_id, 5), a.row_id, r.title, NULL, r.provenance, r.sys_to
FROM artifact_revisions AS r JOIN artifacts AS a ON a.row_id = r.artifact_row
WHERE a.kind = 'episode' AND a.erasure_row IS NULL;
