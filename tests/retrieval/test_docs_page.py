"""The page about retrieval tells the truth: every row of its tables is asked, every number is the program's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memoree import limits
from memoree.evaluation.corpus import bundled, read_corpus
from memoree.evaluation.metrics import by_class
from memoree.evaluation.running import run_corpus, temporary_endpoint
from memoree.retrieval import driving, typo
from memoree.retrieval.engine import WINDOW_PER_HIT
from memoree.retrieval.hits import Ranking
from memoree.retrieval.qualify import typo_matches_needed
from memoree.retrieval.query import Query, analyze, required_matches
from memoree.retrieval.recency import PROMOTION_MAX
from memoree.retrieval.telling import is_common, is_special, is_telling, names_of
from memoree.retrieval.unspaced import EXACT_CHARS_MAX, PAIRS_NEEDED

from .store import HERE, Json, Store

PAGE = (Path(__file__).parents[2] / "docs" / "retrieval.md").read_text()
ANSWERS = {"yes": True, "none": False}
KINDS = {
    "common": is_common,
    "of a subject": is_special,
    "telling": is_telling,
    "ordinary": lambda word: not (is_common(word) or is_special(word) or is_telling(word)),
}
BOUNDS = {
    "bytes of a question": (limits.QUERY_BYTES_MAX,),
    "words of a question, function words included": (limits.QUERY_WORDS_MAX,),
    "claims of an answer": (limits.RECALL_CLAIMS_DEFAULT, limits.RECALL_CLAIMS_MAX),
    "documents of an answer": (limits.RECALL_ARTIFACT_REFS_DEFAULT, limits.RECALL_ARTIFACT_REFS_MAX),
    "candidates of each kind": (0, limits.RECALL_CANDIDATE_CLAIMS_MAX),
    "leads of a probe": (limits.PROBE_ITEMS_MAX,),
    "bytes that `retrieve` recovers": (limits.RETRIEVE_EVIDENCE_BYTES_MAX,),
    "part of a context that lists contradictions": (1, limits.CONTEXT_CONFLICTS_SHARE),
    "evidence cited of one claim in a context": (limits.CONTEXT_EVIDENCE_PER_CLAIM_MAX,),
}


def rows(*header: str) -> list[dict[str, str]]:
    """The rows of every table of the page whose header begins so."""
    found: list[dict[str, str]] = []
    for table in re.findall(r"(?:^\|.*\|\n)+", PAGE, flags=re.MULTILINE):
        names, _, *lines = (tuple(cell.strip() for cell in line.strip("|\n").split("|")) for line in table.splitlines())
        if names[: len(header)] == header:
            found += [dict(zip(names, line, strict=True)) for line in lines]
    assert found, f"no table begins with {header}"
    return found


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def own_project(number: int) -> Json:
    return {**HERE, "project_id": f"prj_example_{number}"}


def examples(kind: str) -> Iterator[tuple[Json, list[str], str, bool, dict[str, str]]]:
    """A project of its own for each row, what it holds, the question, and whether that is answered."""
    for number, row in enumerate(rows(kind, "question", "answer")):
        (question,) = quoted(row["question"])
        yield own_project(number), quoted(row[kind]), question, ANSWERS[row["answer"]], row


def test_every_claim_of_the_page_answers_what_the_page_says_and_nothing_else(store: Store) -> None:
    wrong = []
    for context, (statement,), question, expected, _ in examples("claim"):
        store.claim(statement, context)
        presence = store.read("memory.recall", {"query": question}, context)["presence"]
        if presence != ("claims" if expected else "none"):
            wrong.append((statement, question, presence))
    assert wrong == []


def test_every_document_of_the_page_answers_what_the_page_says_and_nothing_else(store: Store) -> None:
    wrong = []
    for context, (title, body), question, expected, _ in examples("document"):
        store.artifact(title, body, context)
        presence = store.read("memory.recall", {"query": question}, context)["presence"]
        if presence != ("artifacts_only" if expected else "none"):
            wrong.append((title, question, presence))
    assert wrong == []


def test_where_the_page_names_a_rule_that_rule_alone_decides(store: Store) -> None:
    named = [example for example in examples("claim") if example[-1].get("rule") and not example[3]]
    assert len(named) == 6
    for context, (statement,), question, _, row in named:
        store.claim(statement, context)
        (hit,) = store.hits(question, context)
        assert broken_rules(question, hit["ranking"]["matched_terms"]) == {int(row["rule"][0])}, question


def broken_rules(question: str, matched: list[str]) -> set[int]:
    """The numbers of the page's rules that these units of a question do not keep, by the page's words."""
    query = analyze(question)
    has = {unit.display: unit.display in matched for unit in query.units}

    def of(kind: Any) -> list[bool]:
        return [has[word] for word in has if kind(word)]

    names = names_of(question)
    weights = {word: 1 if is_common(word) else 2 for word in has}
    kept = {
        1: all(has[unit.display] for unit in query.units if unit.is_phrase or re.search(r"\d", unit.display)),
        2: sum(has.values()) >= query.required_matches,
        3: all(not of(kind) or sum(of(kind)) > len(of(kind)) / 2 for kind in (is_telling, names.__contains__)),
        4: 3 * sum(of(is_special)) >= 2 * len(of(is_special)),
        5: 2 * sum(weights[word] for word in has if has[word]) >= sum(weights.values()),
    }
    return {rule for rule, holds in kept.items() if not holds}


def test_every_question_is_read_as_the_page_says() -> None:
    for row in rows("question", "units"):
        (question,) = quoted(row["question"])
        query = analyze(question)
        assert [unit.display for unit in query.units] == quoted(row["units"])
        assert list(query.dropped_stopwords) == quoted(row["left out"])
        assert query.required_matches == int(row["needed"])


def test_so_many_units_are_needed_as_the_table_has() -> None:
    written, guessed = rows("units of the question")
    counts = [int(name) for name in written if name.isdigit()]
    assert [required_matches(count) for count in counts] == [int(written[str(count)]) for count in counts]
    assert [typo_matches_needed(of_units(count)) for count in counts] == [int(guessed[str(count)]) for count in counts]


def of_units(count: int) -> Query:
    return analyze(" ".join(f"word{number}" for number in range(count)))


def test_every_word_is_of_the_kind_that_the_page_says() -> None:
    for row in rows("kind", "means"):
        assert [word for word in quoted(row["for example"]) if not KINDS[row["kind"]](word)] == []


def test_the_first_of_two_texts_stands_first_although_it_is_older(store: Store) -> None:
    for number, row in enumerate(rows("first", "then", "question")):
        (first,), (then,), (question,) = (quoted(row[name]) for name in ("first", "then", "question"))
        store.claims([first, then], own_project(number))
        assert store.excerpts(question, own_project(number))[0] == first
        assert store.excerpts(question, own_project(number), recency={"enabled": False})[0] == first


def test_every_field_that_explains_a_hit_is_there() -> None:
    fields = {name for row in rows("field", "says") for name in quoted(row["field"])}
    analysis = {"content_units", "phrase_groups", "dropped_stopwords"}
    assert fields - analysis <= set(Ranking.__dataclass_fields__)
    assert analysis < fields


def test_every_bound_is_the_one_in_force() -> None:
    stated = {row["what"]: tuple(map(int, re.findall(r"\d+", row["bound"]))) for row in rows("what", "bound")}
    assert stated == BOUNDS


def test_every_number_in_the_text_is_the_program_s() -> None:
    text = " ".join(PAGE.split())
    claims_judged = WINDOW_PER_HIT * (limits.RECALL_SLATE_MAX + 1)
    documents_judged = WINDOW_PER_HIT * (limits.RECALL_ARTIFACT_REFS_DEFAULT + 1)
    assert limits.RECALL_SLATE_PER_CLAIM * limits.RECALL_CLAIMS_DEFAULT >= limits.RECALL_SLATE_MAX
    assert f"in `recall` {claims_judged} claims and {documents_judged} documents" in text
    assert f"at most {driving.ROWS_DRIVEN_MAX:,} rows".replace(",", " ") in text
    assert f"At least {float(typo.SIMILARITY):.0%} of".replace("%", " %") in text
    assert f"{float(typo.SIMILARITY_ONE_WORD):.0%} if it is the whole question".replace("%", " %") in text
    assert "words of three to 48 letters" in text
    assert (PROMOTION_MAX, EXACT_CHARS_MAX, PAIRS_NEEDED) == (2, 4, (3, 5))
    assert f"chunks of about {limits.CHUNK_BYTES_TARGET // 1024} KiB" in text


def test_so_many_questions_of_the_held_out_corpus_are_misled_as_the_page_says() -> None:
    with temporary_endpoint() as endpoint:
        judgements = run_corpus(endpoint, read_corpus(bundled(held_out=True)).select(["honest_none"]))
    found = by_class(judgements)["honest_none"]
    assert f"corpus {found.false_answers} of {found.cases} questions" in PAGE


def test_in_a_large_store_a_text_without_the_rare_words_is_missed_and_one_with_every_word_is_not(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rare = ["A shelf for a pump that runs at night.", "A bracket for a shelf."]
    store.claims([*(f"Pump {number} runs at night in hall {number}." for number in range(20)), *rare])
    question = "shelf bracket of the pump that runs at night"
    assert len(store.qualified(question, limit=100)) == 21
    monkeypatch.setattr(driving, "ROWS_DRIVEN_MAX", 10)
    monkeypatch.setattr(driving, "ROWS_READ_MAX", 10)
    assert set(store.excerpts(question, limit=100)) == {*rare}
    store.claim("The shelf of each pump has a bracket; it runs at night.")
    assert store.excerpts(question, limit=100)[0].startswith("The shelf of each pump")
