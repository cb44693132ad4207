"""Reading a corpus and storing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from memoree.client.request import Endpoint
from memoree.errors import MemoreeError
from memoree.evaluation.asking import Asker
from memoree.evaluation.corpus import Corpus, bundled, read_corpus
from memoree.evaluation.metrics import BOUNDS
from memoree.evaluation.report import document
from memoree.evaluation.running import run_corpus
from memoree.evaluation.seeding import store_seeds

from .mini import CASES, SEEDS, Json, artifact, case, claim, seed, write_corpus

CLASSES_OF_THE_CORPUS = {
    "exact_identifier",
    "lexical",
    "paraphrase",
    "typo_abbreviation",
    "honest_none",
    "ambient_scope",
    "long_document",
    "conflict",
    "temporal",
    "explicit_broadening",
    "multilingual",
    "poisoning",
    "dialogue",
}


def test_a_quote_becomes_the_bytes_it_has_in_the_newest_revision(endpoint: Endpoint, tmp_path: Path) -> None:
    body = {"type": "text", "data": "Zwölf Brände, dann Ruhe."}
    revised = seed("x-1", "artifact.revise", artifact_id="@a-e", expected_revision_id="@a-e!", content=body)
    seeds = [
        artifact("a-e", "Log", "Old."),
        revised,
        claim("c-1", "Then it rests.", evidence=[{"artifact": "@a-e", "quote": "dann Ruhe"}]),
    ]
    corpus = read_corpus(write_corpus(tmp_path / "quoted", seeds, [CASES[3] | {"negatives": []}]))
    asker = Asker(endpoint)
    stored = store_seeds(asker, corpus.seeds)
    record = asker.result("claim.get", {"claim_id": stored.id("c-1")})
    (locator,) = record["evidence"]
    assert locator["revision_id"] == stored.entities["a-e"].revision_id
    assert (locator["start_byte"], locator["end_byte"]) == (16, 25)


def test_storing_a_corpus_twice_changes_nothing(endpoint: Endpoint, mini: Corpus) -> None:
    asker = Asker(endpoint)
    first = store_seeds(asker, mini.seeds)
    commit_seq = asker.result("doctor", {})["last_commit_seq"]
    again = store_seeds(asker, mini.seeds)
    assert again.entities == first.entities
    assert asker.result("doctor", {})["last_commit_seq"] == commit_seq > 0


def test_a_selection_keeps_every_seed(mini: Corpus) -> None:
    chosen = mini.select(["conflict"], ["tariff"])
    assert [each.id for each in chosen.cases] == ["glaze", "tariff"]
    assert chosen.seeds == mini.seeds
    for classes, ids in ((["glaze"], []), ([], ["conflict"])):
        with pytest.raises(MemoreeError, match="the corpus has no"):
            mini.select(classes, ids)


@pytest.mark.parametrize(
    ("seeds", "cases", "message"),
    [
        ([], CASES, "no seeds"),
        (SEEDS, [], "no cases"),
        ([*SEEDS, SEEDS[0]], CASES, r"seeds-mini.jsonl:11: 'a-log' is there twice"),
        (SEEDS[1:], CASES, r"seeds-mini.jsonl:1: no seed before it makes 'a-log'"),
        ([*SEEDS, seed("x-9", "claim.retract", claim_id="@x-1")], CASES, "no seed before it makes 'x-1'"),
        ([*SEEDS, claim("c-9", "It is.", evidence=[{"quote": "It"}])], CASES, "evidence is an artifact and a quote"),
        ([{**SEEDS[0], "op": "artifact.steal"}, *SEEDS[1:]], CASES, "seeds-mini.jsonl:1: op: "),
        ([{**SEEDS[0], "context": {"workspace_id": "wsp_lab"}}], CASES, "context.project_id: Field required"),
        (SEEDS, [*CASES, CASES[1]], "cases-mini.jsonl:5: 'fan' is there twice"),
        (SEEDS, [CASES[0] | {"negatives": ["c-gone"]}], "cases-mini.jsonl:1: no seed before it makes 'c-gone'"),
        (SEEDS, [CASES[0] | {"negatives": ["x-1"]}], "no seed before it makes 'x-1'"),
        (SEEDS, [CASES[0] | {"presence": "none"}], "presence none does not agree"),
        (SEEDS, [case("1", "lexical", "q", "claims")], "presence claims does not agree"),
        (SEEDS, [CASES[0] | {"comment": "x"}], "comment: Extra inputs"),
    ],
)
def test_a_wrong_corpus_is_refused_with_file_and_line(
    tmp_path: Path, seeds: list[Json], cases: list[Json], message: str
) -> None:
    directory = write_corpus(tmp_path / "wrong", seeds, cases)
    with pytest.raises(MemoreeError, match=message):
        read_corpus(directory)


@pytest.mark.parametrize("quote", ["reached", "cone 7", "o"])
def test_a_quote_that_is_not_exactly_once_in_its_artifact_is_refused(
    endpoint: Endpoint, tmp_path: Path, quote: str
) -> None:
    seeds = [
        artifact("a-log", "Log", "It reached cone 6. Then it reached cone 5."),
        claim("c-1", "It did.", evidence=[{"artifact": "@a-log", "quote": quote}]),
    ]
    corpus = read_corpus(write_corpus(tmp_path / "quoted", seeds, [CASES[3] | {"negatives": []}]))
    with pytest.raises(MemoreeError, match="not exactly once in @a-log"):
        store_seeds(Asker(endpoint), corpus.seeds)


# --- the corpus of the program ----------------------------------------------------------------------------------


def test_the_corpus_has_cases_of_every_class_and_hard_negatives() -> None:
    corpus = read_corpus(bundled())
    assert len(corpus.cases) >= 150
    assert {each.name for each in corpus.cases} == CLASSES_OF_THE_CORPUS
    assert [each.id for each in corpus.cases if each.presence != "none" and not each.negatives] == []
    asked = {ref for each in corpus.cases for ref in each.references()}
    assert len(asked) < len(corpus.seeds), "much is stored that no case asks about"


def test_the_corpus_reaches_every_bound(endpoint: Endpoint) -> None:
    found = document(run_corpus(endpoint, read_corpus(bundled())))
    assert [bound for bound in found["bounds"] if bound["verdict"] == "MISSED"] == []
    assert len(found["bounds"]) == len(BOUNDS)
