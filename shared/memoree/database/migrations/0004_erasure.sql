-- Hard forget. An erased artifact or claim keeps its ids, owner, order, instants and sizes, on which others rest, and
-- nothing of what it said.

CREATE TABLE erasures (
    row_id      INTEGER PRIMARY KEY,  -- the commit
    erasure_id  TEXT    NOT NULL UNIQUE,
    created_at  TEXT    NOT NULL
) STRICT;

-- Which erasure it was; an artifact is forgotten then, and a claim retracted.
ALTER TABLE artifacts ADD COLUMN erasure_row INTEGER REFERENCES erasures (row_id);
ALTER TABLE claims ADD COLUMN erasure_row INTEGER REFERENCES erasures (row_id);

CREATE INDEX erased_artifacts ON artifacts (erasure_row) WHERE erasure_row IS NOT NULL;
CREATE INDEX erased_claims ON claims (erasure_row) WHERE erasure_row IS NOT NULL;

CREATE TRIGGER erasures_are_immutable BEFORE UPDATE ON erasures
BEGIN SELECT raise(ABORT, 'erasures are immutable'); END;

CREATE TRIGGER erasures_stay BEFORE DELETE ON erasures
BEGIN SELECT raise(ABORT, 'erasures are never deleted'); END;
