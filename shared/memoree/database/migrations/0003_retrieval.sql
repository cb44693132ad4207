-- The index is made anew: beside words in their places and pairs of characters it has terms, each once per row.
-- Only terms are scored (rank); everything else says where words stand. Marks belong to words: many scripts write
-- vowels as marks.

DROP TABLE artifact_vocabulary;
DROP TABLE claim_vocabulary;
DROP TABLE artifact_fts;
DROP TABLE claim_fts;
DROP TABLE projection_fts;

CREATE VIRTUAL TABLE artifact_fts USING fts5 (
    title, body, title_cjk, body_cjk, title_terms, body_terms,
    content = '', tokenize = "unicode61 remove_diacritics 2 categories 'L* N* M* Co'"
);
INSERT INTO artifact_fts (artifact_fts, rank) VALUES ('secure-delete', 1);
INSERT INTO artifact_fts (artifact_fts, rank) VALUES ('rank', 'bm25(0.0, 0.0, 0.0, 0.0, 5.0, 1.0)');

CREATE VIRTUAL TABLE claim_fts USING fts5 (
    statement, cjk, terms,
    content = '', tokenize = "unicode61 remove_diacritics 2 categories 'L* N* M* Co'"
);
INSERT INTO claim_fts (claim_fts, rank) VALUES ('secure-delete', 1);
INSERT INTO claim_fts (claim_fts, rank) VALUES ('rank', 'bm25(0.0, 0.0, 1.0)');

CREATE VIRTUAL TABLE projection_fts USING fts5 (
    text, cjk, terms,
    content = '', tokenize = "unicode61 remove_diacritics 2 categories 'L* N* M* Co'"
);
INSERT INTO projection_fts (projection_fts, rank) VALUES ('secure-delete', 1);
INSERT INTO projection_fts (projection_fts, rank) VALUES ('rank', 'bm25(0.0, 0.0, 1.0)');

CREATE VIRTUAL TABLE artifact_vocabulary USING fts5vocab (artifact_fts, row);
CREATE VIRTUAL TABLE claim_vocabulary USING fts5vocab (claim_fts, row);

-- Words that a misspelled one may have meant, in the order they came: who has read some reads on from there.
CREATE TABLE words (
    row_id  INTEGER PRIMARY KEY,
    word    TEXT    NOT NULL UNIQUE
) STRICT;

-- Revisions whose text quotes this very store: retrieved context that was stored again.
CREATE TABLE derivations (
    revision_row  INTEGER PRIMARY KEY REFERENCES artifact_revisions (row_id),
    citations     TEXT    NOT NULL      -- JSON array, in order of appearance
) STRICT;

CREATE INDEX active_anchors ON projections (revision_row) WHERE kind = 'retrieval_anchor' AND status = 'active';
