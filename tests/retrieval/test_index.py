from __future__ import annotations

import time
import tracemalloc

import apsw
import pytest

from memoree.database import index
from memoree.database.connection import scalar

from .store import Store

TABLES = ("artifact_fts", "claim_fts")
REVISIONS_OF = "SELECT row_id FROM artifact_revisions WHERE title LIKE ?"


def vocabulary(db: apsw.Connection) -> set[str]:
    terms = "SELECT term FROM artifact_vocabulary UNION SELECT term FROM claim_vocabulary"
    return {str(term) for (term,) in db.execute(terms)}


def check_integrity(db: apsw.Connection) -> None:
    for table in TABLES:
        db.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")


def test_unindexing_leaves_no_term_of_a_revision_behind(store: Store) -> None:
    store.artifact("Kept title", "kept body 残る")
    before = vocabulary(store.db)
    store.artifact("Secret Straße", "secretword 秘密の鍵 " * 400)
    store.artifact("Secretpdf", b"\x00\xff", media_type="application/pdf")
    store.claim("The secretclaim is 秘密")
    assert {"secretword", "秘密", "strasse", "secretpdf", "secretclaim"} <= vocabulary(store.db)
    for (revision_row,) in store.db.execute(REVISIONS_OF, ("Secret%",)).fetchall():
        index.unindex_artifact_revision(store.db, revision_row=revision_row)
    index.unindex_claim_revision(store.db, revision_row=scalar(store.db, "SELECT row_id FROM claim_revisions"))
    check_integrity(store.db)
    assert vocabulary(store.db) == before
    assert scalar(store.db, "SELECT count(*) FROM artifact_chunks") == 1


def test_an_inline_body_is_not_stored_again_in_its_chunks(store: Store) -> None:
    store.artifact("Small", "a small body")
    store.artifact("Large", "a large body. " * 2000)
    kept = "SELECT revision_row, count(text), count(*) FROM artifact_chunks GROUP BY 1"
    small, large = store.db.execute(kept).fetchall()
    assert small[1:] == (0, 1)
    assert large[1] == large[2] > 1


def test_eight_mebibytes_are_indexed_in_seconds_with_bounded_memory(store: Store) -> None:
    text = ("the kiln log says cone six; " * 300_000)[: 8 * 1024 * 1024]
    store.db.execute("PRAGMA foreign_keys = OFF")
    tracemalloc.start()
    started = time.perf_counter()
    index.index_artifact_revision(store.db, revision_row=1, title="Big", text=text, stored_inline=False)
    elapsed = time.perf_counter() - started
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert elapsed < 30
    assert peak_bytes < 3 * len(text)


@pytest.mark.proves("retrieval-47")
def test_a_body_that_is_no_text_is_found_by_its_title_only(store: Store) -> None:
    store.artifact("Json", '{"glaze": "celadon"}', media_type="application/json")
    store.artifact("Binary", b"temmoku", media_type="application/octet-stream")
    store.artifact("Broken", b"temmoku \xff", media_type="text/plain")
    assert [hit["title"] for hit in store.hits("celadon")] == ["Json"]
    assert store.hits("temmoku", recency={"enabled": False}) == []
    assert [hit["title"] for hit in store.hits("broken")] == ["Broken"]
