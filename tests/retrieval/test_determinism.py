"""The same content and question give the same answer (retrieval §2.5, assertion 35): in any order of writing, from any
copy of the store, in any process."""

from __future__ import annotations

import itertools
import multiprocessing
import tempfile
from collections.abc import Sequence
from pathlib import Path

import apsw
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memoree import clock
from memoree.database import meta
from memoree.database.connection import open_reader
from memoree.envelope import Envelope
from memoree.operations.call import validate
from memoree.operations.execute import run_read
from memoree.operations.view import View

from .store import FACTS, HERE, Json, MemoryBlobs, Store

OPERATIONS = ("search", "memory.recall", "memory.probe", "memory.retrieve", "context.build")
WORDS = ["celadon", "glaze", "kiln", "cone", "shelf", "iron", "设备", "žlutý"]
QUESTIONS = [
    "celadon glaze", "kiln", "celadon kiln shelf iron", "seladon glase", '"celadon glaze" cone', "设备",
    "CELADON-GLAZE", "glaze marlinspike ladder anvil", "which kiln has the shelf",
]  # fmt: skip

texts = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map(" ".join), min_size=2, max_size=9, unique=True
)


def answer_of(db: apsw.Connection, now: str, op: str, query: str, options: Json) -> bytes:
    """The result of a read as it is sent."""
    view = View(db, MemoryBlobs(), FACTS, meta.read(db), now)
    envelope = Envelope(request_id="req_1", op=op, idempotency_key=None, context=HERE, input={"query": query} | options)
    return orjson.dumps(run_read(view, validate(envelope)))


def all_answers(path: Path, now: str) -> list[bytes]:
    """Every answer of every operation from the database file at `path`, read at the instant `now`."""
    db = open_reader(path, immutable=False)
    try:
        return [answer_of(db, now, op, query, {}) for op in OPERATIONS for query in QUESTIONS]
    finally:
        db.close()


def path_of(store: Store) -> Path:
    return Path(store.db.db_filename("main"))


@pytest.fixture
def filled(store: Store) -> Store:
    """A store of claims, artifacts, a conflict and a projection, written over months."""
    for number, words in enumerate(itertools.product(WORDS[:4], WORDS[3:], WORDS[::3])):
        text = f"{' '.join(words)} number {number}"
        if number % 2:
            artifact = store.artifact(f"Note {number}", text, kind="deploy-log")
            located = {"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}
            store.claim(f"{words[0]} was seen, says {number}", evidence=[located | {"start_byte": 0, "end_byte": 7}])
        else:
            store.claim(text, claim_type="observation")
        store.advance(days=3)
    left, right = store.claims(["The celadon glaze cracked.", "The celadon glaze held."])
    edge = {"source_type": "claim", "source_id": left["claim_id"], "relation": "contradicts", "target_type": "claim"}
    store.write("relation.put", edge | {"target_id": right["claim_id"]})
    return store


@pytest.mark.proves("retrieval-35")
def test_two_answers_of_one_store_are_the_same_bytes(filled: Store) -> None:
    now = clock.stored(filled.now)
    first = all_answers(path_of(filled), now)
    assert [b'"presence":"claims"' in answer for answer in first[len(QUESTIONS) : len(QUESTIONS) + 3]] == [True] * 3
    assert all_answers(path_of(filled), now) == first


@pytest.mark.proves("retrieval-35")
def test_a_copy_answers_in_the_same_bytes(filled: Store, tmp_path: Path) -> None:
    now, copy = clock.stored(filled.now), tmp_path / "copy.sqlite3"
    filled.db.execute("VACUUM INTO ?", (str(copy),))
    assert all_answers(copy, now) == all_answers(path_of(filled), now)


@pytest.mark.proves("retrieval-35")
def test_another_process_answers_in_the_same_bytes(filled: Store) -> None:
    """A process of its own has another order of its sets."""
    now = clock.stored(filled.now)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(all_answers, (path_of(filled), now))
    assert there == all_answers(path_of(filled), now)


@pytest.mark.proves("retrieval-35")
def test_an_answer_does_not_depend_on_what_was_asked_before(filled: Store) -> None:
    now = clock.stored(filled.now)
    forwards = {question: answer_of(filled.db, now, "search", question, {}) for question in QUESTIONS}
    backwards = {question: answer_of(filled.db, now, "search", question, {}) for question in QUESTIONS[::-1]}
    assert forwards == backwards


def write(store: Store, contents: Sequence[tuple[bool, str]], *, days_between: int) -> None:
    for is_claim, text in contents:
        if is_claim:
            store.claim(text)
        else:
            store.artifact("untitled", text)
        store.advance(days=days_between)


def by_relevance(store: Store, query: str, options: Json) -> list[list[str]]:
    """The excerpts of a search in order, those of equal relevance together."""
    hits = store.hits(query, limit=100, **options)

    def relevance(hit: Json) -> tuple[object, ...]:
        return hit["ranking"]["exact_tier"], round(hit["ranking"]["lexical_score"], 9)

    return [sorted(hit["excerpt"] for hit in run) for _, run in itertools.groupby(hits, key=relevance)]


@pytest.mark.proves("retrieval-35")
@given(texts, st.data())
@settings(max_examples=25, deadline=None)
def test_the_order_of_writing_decides_only_between_equals(written: list[str], data: st.DataObject) -> None:
    contents = [(data.draw(st.booleans()), text) for text in written]
    shuffled = data.draw(st.permutations(contents))
    days = data.draw(st.sampled_from([0, 40]))
    with tempfile.TemporaryDirectory() as directory:
        one, two = Store(Path(directory) / "one"), Store(Path(directory) / "two")
        try:
            write(one, contents, days_between=0)
            write(two, shuffled, days_between=days)
            options: Json = {"recency": {"enabled": days == 0 and data.draw(st.booleans())}}
            for query in written:
                assert by_relevance(one, query, options) == by_relevance(two, query, options), query
        finally:
            one.close()
            two.close()
