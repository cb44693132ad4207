from __future__ import annotations

import random
import time
import tracemalloc
from pathlib import Path

import apsw
import pytest

from memoree.database import index
from memoree.database.connection import scalar

from .store import Json, Store

TABLES = ("artifact_fts", "claim_fts", "projection_fts")
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


def test_unindexing_leaves_no_byte_of_a_text_but_what_separates_pages_until_they_are_merged(
    store: Store, tmp_path: Path
) -> None:
    """Texts are in capitals and the index folds them, so that whatever the file has in small letters is the index's.
    `words` is no part of it: which of them only an erased text had, is for the erasure to know."""
    chooser = random.Random(7)
    secrets = ["q" + "".join(chooser.choices("bcdfghjklmnpqrstvwxz", k=14)) for _ in range(1200)]
    secrets.append("カタ")
    for number in range(0, 1200, 100):
        text = " ".join(secrets[number : number + 100]).upper()
        hidden = store.artifact(f"{text[:200]} ｶﾀｶﾅ", text)
        store.claim(text)
        store.artifact("Kept", " ".join(chooser.choices("abcdefgh", k=200)))
    store.write("projection.put", projection_input(hidden, text))
    assert found_in_file(store, tmp_path, secrets) == secrets

    for (row,) in store.db.execute("SELECT row_id FROM artifact_revisions WHERE title <> 'Kept'").fetchall():
        index.unindex_artifact_revision(store.db, revision_row=row)
    for (row,) in store.db.execute("SELECT row_id FROM claim_revisions").fetchall():
        index.unindex_claim_revision(store.db, revision_row=row)
    index.unindex_projection(store.db, projection_row=scalar(store.db, "SELECT row_id FROM projections"))
    store.db.execute("DELETE FROM words")
    separators = [term for table in TABLES for (term,) in store.db.execute(f"SELECT term FROM {table}_idx")]
    for secret in found_in_file(store, tmp_path, secrets):
        assert any(tail_of(secret) in term for term in separators), secret

    store.artifact("A row more", "which makes another segment")
    store.claim("So that there are two to merge.")
    for table in TABLES:
        store.db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
    assert found_in_file(store, tmp_path, secrets) == []
    separators = [term for table in TABLES for (term,) in store.db.execute(f"SELECT term FROM {table}_idx")]
    assert [term for term in separators if term[1:2] == b"q"] == []


def tail_of(word: str) -> bytes:
    """The part of a word that an index keeps, however much of its beginning the word before it has."""
    return word[-9:].encode()


def found_in_file(store: Store, directory: Path, words: list[str]) -> list[str]:
    store.db.execute("PRAGMA wal_checkpoint (TRUNCATE)")
    (path,) = directory.rglob("store.sqlite3")
    data = path.read_bytes()
    return [word for word in words if tail_of(word) in data]


def projection_input(artifact: Json, text: str) -> Json:
    return {name: artifact[name] for name in ("artifact_id", "revision_id")} | {
        "projection_key": "summary",
        "kind": "summary",
        "text": text[:1000],
        "evidence_spans": [{"start_byte": 0, "end_byte": 9}],
        "generator": "summariser",
        "generator_version": "1",
        "generator_digest": "sha256:00ff",
    }


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
    started = time.process_time()
    index.index_artifact_revision(store.db, revision_row=1, title="Big", text=text, stored_inline=False)
    elapsed = time.process_time() - started  # other processes take none of it
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert elapsed < 90
    assert peak_bytes < 3 * len(text)


@pytest.mark.proves("retrieval-47")
def test_a_body_that_is_no_text_is_found_by_its_title_only(store: Store) -> None:
    store.artifact("Json", '{"glaze": "celadon"}', media_type="application/json")
    store.artifact("Binary", b"temmoku", media_type="application/octet-stream")
    store.artifact("Broken", b"temmoku \xff", media_type="text/plain")
    assert [hit["title"] for hit in store.hits("celadon")] == ["Json"]
    assert store.hits("temmoku", recency={"enabled": False}) == []
    assert [hit["title"] for hit in store.hits("broken")] == ["Broken"]
