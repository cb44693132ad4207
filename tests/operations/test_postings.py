"""`verify` notices an index that says something else than the texts it was made from."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import pytest
from apsw.fts5 import Table

from memoree import limits
from memoree.database.index import artifact_rows, rebuild
from memoree.database.schema import create_or_migrate
from memoree.retrieval.text import segments
from memoree.verification import index, postings
from mixed_mutations import LONG_TEXT, mixed_mutations

from .bench import Bench

CLAIM_COLUMNS = ("statement", "cjk", "terms")
PROJECTION_COLUMNS = ("text", "cjk", "terms")
ARTIFACT_COLUMNS = ("title", "body", "title_cjk", "body_cjk", "title_terms", "body_terms")
SAYS_OTHERWISE = "says something else of it than its text"


def replace_row(
    db: apsw.Connection, columns: Sequence[str], row: int, said: Sequence[str], instead: Sequence[str]
) -> None:
    """Index a row as saying something else, the way FTS5 itself would have written it."""
    table = {CLAIM_COLUMNS: "claim_fts", PROJECTION_COLUMNS: "projection_fts", ARTIFACT_COLUMNS: "artifact_fts"}[
        tuple(columns)
    ]
    names, places = ", ".join(columns), ", ".join("?" * len(columns))
    db.execute(f"INSERT INTO {table} ({table}, rowid, {names}) VALUES ('delete', ?, {places})", (row, *said))
    db.execute(f"INSERT INTO {table} (rowid, {names}) VALUES (?, {places})", (row, *instead))


def told(bench: Bench) -> list[tuple[str, str]]:
    """The names of what differs, and how; the other check of the index has nothing to say."""
    assert list(index.issues(bench.db)) == []
    found = list(postings.issues(bench.db))
    assert {issue.kind for issue in found} <= {"index"}
    return [(issue.entity, issue.detail) for issue in found]


def claim_row(bench: Bench, claim: dict[str, str]) -> int:
    return int(
        bench.db.execute("SELECT row_id FROM claim_revisions WHERE revision_id = ?", (claim["revision_id"],)).get
    )


def all_of_many_scripts(bench: Bench) -> None:
    for text in (
        "naïve Ελληνικά йога Ёлка",
        "हिन्दी में",
        "ภาษาไทย",
        "עִבְרִית",
        "\u0301\u0327 x\u0301y",
        "設備a社製 38.101",
    ):
        bench.put(text, title=text)
        bench.claim(f"{text} glaze\u20ddfire \u0488kiln 👩‍🔬 \0")


@pytest.mark.proves("machine-212")
def test_what_is_indexed_by_the_operations_is_what_the_texts_say(bench: Bench) -> None:
    mixed_mutations(bench.write)
    all_of_many_scripts(bench)
    bench.put("设备" * 5000 + " and the glaze " * 900, title="long 設備")
    assert told(bench) == []


@pytest.mark.proves("machine-212")
def test_an_index_that_was_rebuilt_says_the_same(bench: Bench) -> None:
    mixed_mutations(bench.write)
    all_of_many_scripts(bench)
    for table in index.INDEXES:
        bench.db.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")
    rebuild(bench.db)
    assert told(bench) == []


@pytest.mark.proves("machine-213")
def test_claims_indexed_in_each_others_place_are_both_told(bench: Bench) -> None:
    texts = ("alpha turbine maintenance", "bravo kettle descaling")
    claims = [bench.claim(text) for text in texts]
    for claim, said, instead in zip(claims, texts, reversed(texts), strict=True):
        replace_row(bench.db, CLAIM_COLUMNS, claim_row(bench, claim), segments(said), segments(instead))
    assert told(bench) == [(claim["revision_id"], f"claim_fts {SAYS_OTHERWISE}") for claim in claims]


@pytest.mark.proves("machine-213")
@pytest.mark.parametrize(
    "change",
    [
        {"terms": "zzz"},
        {"terms": "kiln 設備 設 glaze"},
        {"terms": "", "cjk": "設備 備 kiln glaze 38 101"},
        {"statement": ""},
        {"statement": "glaze kiln 38.101"},
        {"statement": "kiln the glaze 38.101"},
        {"cjk": ""},
    ],
    ids=["foreign terms", "lost terms", "terms elsewhere", "no words", "words turned", "a word more", "no pairs"],
)
def test_any_other_posting_of_a_claim_is_told(bench: Bench, change: dict[str, str]) -> None:
    statement = "kiln glaze 38.101 設備"
    claim = bench.claim(statement)
    bench.claim("the other one")
    said = segments(statement)
    instead = dict(zip(CLAIM_COLUMNS, said, strict=True)) | change
    replace_row(bench.db, CLAIM_COLUMNS, claim_row(bench, claim), said, list(instead.values()))
    assert told(bench) == [(claim["revision_id"], f"claim_fts {SAYS_OTHERWISE}")]


@pytest.mark.proves("machine-213")
def test_a_document_of_many_wrong_chunks_is_told_once_and_without_its_words(bench: Bench) -> None:
    artifact = bench.put(LONG_TEXT, title="Recipes")
    texts = [(row, text) for row, text in bench.db.execute("SELECT row_id, text FROM artifact_chunks ORDER BY ordinal")]
    assert len(texts) > 2
    title = segments("Recipes")
    for row in artifact_rows(title, texts):
        replace_row(bench.db, ARTIFACT_COLUMNS, row.row_id, row[1:], (*row[1:6], "zzz"))
    assert told(bench) == [(artifact["revision_id"], f"artifact_fts {SAYS_OTHERWISE}")]


@pytest.mark.proves("machine-213")
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_every_column_of_a_chunk_counts(bench: Bench, number: int) -> None:
    artifact = bench.put("kiln 設備 reached", title="cone 漢字")
    [row] = artifact_rows(segments("cone 漢字"), [(1, "kiln 設備 reached")])
    instead = [*row[1:]]
    instead[number - 1] += " zzz"
    replace_row(bench.db, ARTIFACT_COLUMNS, 1, row[1:], instead)
    assert told(bench) == [(artifact["revision_id"], f"artifact_fts {SAYS_OTHERWISE}")]


@pytest.mark.proves("machine-213")
def test_a_chunk_without_the_beginning_of_the_next_is_told(bench: Bench) -> None:
    artifact = bench.put(LONG_TEXT)
    texts = [(row, text) for row, text in bench.db.execute("SELECT row_id, text FROM artifact_chunks ORDER BY ordinal")]
    title = segments("Kiln firing 12")
    first, alone = next(artifact_rows(title, texts)), next(artifact_rows(title, texts[:1]))
    replace_row(bench.db, ARTIFACT_COLUMNS, first.row_id, first[1:], alone[1:])
    assert told(bench) == [(artifact["revision_id"], f"artifact_fts {SAYS_OTHERWISE}")]


@pytest.mark.proves("machine-213")
def test_a_projection_indexed_with_another_text_is_told(bench: Bench) -> None:
    made = mixed_mutations(bench.write)
    projection = made["summary"]["projection_id"]
    row = bench.db.execute("SELECT row_id FROM projections WHERE projection_id = ?", (projection,)).get
    replace_row(bench.db, PROJECTION_COLUMNS, row, segments("green iron glazes"), segments("green iron kilns"))
    assert told(bench) == [(projection, f"projection_fts {SAYS_OTHERWISE}")]


def test_of_a_large_index_the_same_share_is_compared_every_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [bench.claim(f"kiln {number}") for number in range(120)]
    for number, claim in enumerate(claims):
        said = segments(f"kiln {number}")
        replace_row(bench.db, CLAIM_COLUMNS, claim_row(bench, claim), said, (*said[:2], "zzz"))
    monkeypatch.setattr(limits, "VERIFY_TEXTS_COMPARED_MAX", 30)
    sample = told(bench)
    assert 15 <= len(sample) <= 60
    assert told(bench) == sample
    monkeypatch.setattr(limits, "VERIFY_TEXTS_COMPARED_MAX", 120)
    everything = told(bench)
    assert len(everything) == 120 and set(sample) < set(everything)


def test_rows_of_every_other_commit_are_sampled_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims that alternate with other commits have row ids of one parity."""
    for number in range(40):
        claim = bench.claim(f"kiln {number}")
        bench.put(f"log {number}")
        said = segments(f"kiln {number}")
        replace_row(bench.db, CLAIM_COLUMNS, claim_row(bench, claim), said, (*said[:2], "zzz"))
    for shares in (2, 4):
        monkeypatch.setattr(limits, "VERIFY_TEXTS_COMPARED_MAX", 40 // shares)
        assert 40 // shares // 2 <= len(told(bench)) <= 40 // shares * 2


def test_nothing_of_the_comparison_stays_behind(bench: Bench) -> None:
    bench.claim()
    bench.db.execute("UPDATE claim_fts_data SET block = zeroblob(length(block)) WHERE id > 10")
    with pytest.raises(apsw.CorruptError):
        list(postings.issues(bench.db))
    assert list(bench.db.execute("SELECT name FROM sqlite_temp_master")) == []


def test_the_tokenizer_is_that_of_every_index() -> None:
    db = apsw.Connection(":memory:")
    create_or_migrate(db)
    name, arguments = postings.TOKENIZER
    for table in index.INDEXES:
        structure = Table(db, table).structure
        assert structure.tokenize == (name, *arguments)
    db.close()
