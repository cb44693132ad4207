"""The corpus of a few items: it holds, and every number of it moves when a service answers wrongly."""

from __future__ import annotations

import pytest

from memoree.client.request import Endpoint
from memoree.evaluation.asking import Asker
from memoree.evaluation.corpus import Corpus
from memoree.evaluation.judging import Judgement
from memoree.evaluation.metrics import by_class, metrics_of
from memoree.evaluation.running import run_corpus
from memoree.evaluation.seeding import store_seeds

from .mini import Altered, Change, Json

CHARACTERS_ADDED = 5_000


def test_right_answers_leave_nothing_to_say(endpoint: Endpoint, mini: Corpus) -> None:
    judgements = run_corpus(endpoint, mini)
    assert [each.faults for each in judgements] == [[]] * len(mini.cases)
    found = metrics_of(judgements)
    assert (found.claim_recall, found.artifact_recall, found.failed) == (1.0, 1.0, 0)
    assert found.citations > 50
    assert found.bytes_median > 500
    assert list(by_class(judgements)) == ["lexical", "long_document", "conflict", "honest_none", "all"]


def find_nothing(result: Json, _: Json) -> None:
    result.update(presence="none", claims=[], artifact_refs=[])


def lose_the_claims(result: Json, _: Json) -> None:
    result.update(presence="artifacts_only", claims=[])


def lose_the_artifacts(result: Json, _: Json) -> None:
    result["artifact_refs"] = []


def forget_the_conflicts(result: Json, _: Json) -> None:
    result["conflicts"] = []


def show_titles(result: Json, _: Json) -> None:
    for ref in result["artifact_refs"]:
        ref.update(excerpt=ref["title"])


def grow(result: Json, _: Json) -> None:
    result["padding"] = "x" * CHARACTERS_ADDED


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (find_nothing, {"claim_recall": 0.0, "artifact_recall": 0.0, "false_abstentions": 3, "failed": 3}),
        (lose_the_claims, {"claim_recall": 0.0, "artifact_recall": 1.0, "other_presence": 2}),
        (lose_the_artifacts, {"claim_recall": 1.0, "artifact_recall": 0.0}),
        (forget_the_conflicts, {"conflicts_missed": 1, "failed": 1}),
        (show_titles, {"answer_missed": 1}),
    ],
)
def test_a_wrong_recall_is_counted(endpoint: Endpoint, mini: Corpus, change: Change, expected: Json) -> None:
    found = metrics_of(run_corpus(Altered(endpoint, "memory.recall", change), mini))
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize("alone", [True, False])
def test_a_negative_before_what_is_demanded_or_instead_of_it_outranks(
    endpoint: Endpoint, mini: Corpus, alone: bool
) -> None:
    negative = store_seeds(Asker(endpoint), mini.seeds).id("c-open")

    def answer_beside_the_point(result: Json, _: Json) -> None:
        others = [] if alone else result["claims"]
        result["claims"] = [{"claim_id": negative, "statement": "Firing 12 was opened."}, *others]

    (judgement,) = run_corpus(Altered(endpoint, "memory.recall", answer_beside_the_point), mini.select(ids=["peak"]))
    assert judgement.outranked == ["c-peak by c-open"]
    assert judgement.is_first is False
    assert judgement.missing == (["c-peak"] if alone else [])


def test_an_answer_to_what_was_never_stored_is_a_false_answer(endpoint: Endpoint, mini: Corpus) -> None:
    before: Json = {}

    def repeat_yourself(result: Json, _: Json) -> None:
        before.update({name: result[name] for name in ("claims", "artifact_refs") if result[name]})
        if result["presence"] == "none":
            result.update(presence="claims", **before)

    found = by_class(run_corpus(Altered(endpoint, "memory.recall", repeat_yourself), mini))
    assert found["honest_none"].false_answers == found["all"].false_answers == 1
    assert found["honest_none"].claim_precision == found["honest_none"].artifact_precision == 0.0


def claim_presence(result: Json, _: Json) -> None:
    result["presence"] = "claims"


def repeat_a_manifest(result: Json, _: Json) -> None:
    result["manifest"] = [{"citation": "memoree://claim/clm_1@crev_1", "source_excerpt_bytes": 0, "included_bytes": 0}]


@pytest.mark.parametrize(
    ("op", "change"),
    [("memory.retrieve", claim_presence), ("context.build", repeat_a_manifest)],
    ids=["retrieve", "context"],
)
def test_no_surface_answers_what_was_never_stored(endpoint: Endpoint, mini: Corpus, op: str, change: Change) -> None:
    (judgement,) = run_corpus(Altered(endpoint, op, change), mini.select(ids=["tariff"]))
    assert judgement.presence == "none"
    assert judgement.is_false_answer
    assert judgement.faults[0].startswith("answered by ")


def test_what_is_acceptable_is_right_and_not_demanded(endpoint: Endpoint, mini: Corpus) -> None:
    (glaze,) = mini.select(ids=["glaze"]).cases
    strict = glaze.model_copy(update={"claims": ["c-twice"]})
    generous = strict.model_copy(update={"acceptable": ["c-once"]})
    judged = run_corpus(endpoint, Corpus(mini.seeds, [strict, generous]))
    assert [metrics_of([each]).claim_precision for each in judged] == [0.5, 1.0]
    assert [metrics_of([each]).claim_recall for each in judged] == [1.0, 1.0]


def test_the_words_that_answer_are_shown_by_what_is_demanded(endpoint: Endpoint, mini: Corpus) -> None:
    catalogue = store_seeds(Asker(endpoint), mini.seeds).id("a-fan")
    (fan,) = mini.select(ids=["fan"]).cases
    asked = Corpus(mini.seeds, [fan.model_copy(update={"answer": "five blades"})])

    def add_another(result: Json, _: Json) -> None:
        result["artifact_refs"].append({"artifact_id": catalogue, "excerpt": "It has five blades."})

    (judgement,) = run_corpus(Altered(endpoint, "memory.recall", add_another), asked)
    assert judgement.artifacts[-1] == "a-fan"
    assert judgement.is_shown is False


def test_the_size_of_an_answer_is_that_of_the_plain_recall(endpoint: Endpoint, mini: Corpus) -> None:
    before = metrics_of(run_corpus(endpoint, mini))
    after = metrics_of(run_corpus(Altered(endpoint, "memory.recall", grow), mini))
    assert after.bytes_median - before.bytes_median > CHARACTERS_ADDED


@pytest.mark.parametrize(
    ("op", "member"),
    [
        ("memory.recall", "claims_refine_hint"),
        ("memory.recall", "candidate_claims"),
        ("memory.probe", "leads"),
        ("memory.retrieve", "next_action"),
        ("memory.retrieve", "recovery"),
        ("context.build", "rendered_markdown"),
    ],
)
def test_a_forbidden_entity_is_found_wherever_it_is_named(
    endpoint: Endpoint, mini: Corpus, op: str, member: str
) -> None:
    judgement = judge_naming("c-old", endpoint, mini, op, member)
    assert judgement.forbidden
    assert all(found.endswith(": c-old") for found in judgement.forbidden)


@pytest.mark.parametrize(
    ("op", "member", "counts"),
    [("memory.recall", "candidate_claims", False), ("memory.probe", "leads", False), ("memory.recall", "note", True)],
)
def test_a_forbidden_negative_may_come_close_and_may_not_answer(
    endpoint: Endpoint, mini: Corpus, op: str, member: str, counts: bool
) -> None:
    (peak,) = mini.select(ids=["peak"]).cases
    lookalike = peak.model_copy(update={"query": "21:40", "forbidden": ["c-open"]})
    judgement = judge_naming("c-open", endpoint, Corpus(mini.seeds, [lookalike]), op, member)
    assert bool(judgement.forbidden) == counts


def judge_naming(ref: str, endpoint: Endpoint, mini: Corpus, op: str, member: str) -> Judgement:
    """The first case, asked of a service that names an entity in one member of its answers."""
    entity_id = store_seeds(Asker(endpoint), mini.seeds).id(ref)

    def name_it(result: Json, _: Json) -> None:
        result[member] = f"memoree://claim/{entity_id}@crev_1" if member == "rendered_markdown" else [entity_id]

    return run_corpus(Altered(endpoint, op, name_it), Corpus(mini.seeds, mini.cases[:1]))[0]


def end_later(result: Json, _: Json) -> None:
    for hit in result["hits"]:
        hit["excerpt"] += "."


def cite_a_byte_later(result: Json, _: Json) -> None:
    for hit in result["hits"]:
        before, mark, span = hit["citation"].partition("#")
        if mark:
            start, _, end = span.partition("-")
            hit["citation"] = f"{before}#{int(start) + 1}-{end}"


def cite_nothing(result: Json, _: Json) -> None:
    for hit in result["hits"]:
        hit["citation"] = "memoree://artifact/art_gone@arev_gone"


@pytest.mark.parametrize("change", [end_later, cite_a_byte_later, cite_nothing])
def test_a_citation_that_shows_something_else_is_inexact(endpoint: Endpoint, mini: Corpus, change: Change) -> None:
    found = metrics_of(run_corpus(Altered(endpoint, "search", change), mini))
    assert 0 < found.inexact_citations < found.citations


def rewrite(result: Json, _: Json) -> None:
    result["rendered_markdown"] = result["rendered_markdown"].replace("21:40", "21:04").replace("Tamsin", "Tomson")


def overrun(result: Json, input: Json) -> None:
    result["rendered_markdown"] += "x" * input["max_bytes"]
    result["used_bytes"] = len(result["rendered_markdown"])


def understate(result: Json, _: Json) -> None:
    result["used_bytes"] -= 1


@pytest.mark.parametrize(
    ("change", "inexact", "overruns"), [(rewrite, True, 0), (overrun, False, 12), (understate, False, 12)]
)
def test_a_context_is_held_to_its_bytes(
    endpoint: Endpoint, mini: Corpus, change: Change, inexact: bool, overruns: int
) -> None:
    found = metrics_of(run_corpus(Altered(endpoint, "context.build", change), mini))
    assert (found.inexact_citations > 0, found.budget_overruns) == (inexact, overruns)
