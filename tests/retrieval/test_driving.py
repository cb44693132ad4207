"""In a large store the rare words of a query decide which rows are read, and the common ones only add to their scores
(retrieval §2.2, decision 0015)."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import apsw
import pytest

from memoree import clock
from memoree.database import meta
from memoree.database.connection import open_reader
from memoree.retrieval import driving
from memoree.retrieval.driving import ROWS_DRIVEN_MAX, STATES_KEPT, RowCounts
from memoree.retrieval.engine import WINDOW_PER_HIT

from .store import Json, Store, artifact_input
from .test_determinism import answer_of, path_of

CLAIMS = 20_000
TAGS = 400
EVERY = {"kiln": 1, "glaze": 2, "river": 2, "shelf": 3, "cone": 5}
"""Common words, and that of how many claims one has them."""
NO_LIMIT = 10**9
FILLER = " ".join(f"filler{number}" for number in range(120))
PLAIN: Json = {"recency": {"enabled": False}}
BETTER_SCORED = 200
HIDDEN = {
    "all words": f"saffron arrives late and {FILLER} with the shelf",
    "a phrase": f"glaze kiln, and {FILLER} about the saffron",
    "an identifier": f"{FILLER} and release v1.7.3 of it",
    "an identifier beside a word": f"{FILLER} and SKU-88 for the saffron",
}
"""Claims that score low for their length, each behind so many that have the same rare words and less else."""
CROWDS = ("saffron {}", "release v1 of 7 and 3 {}", "SKU and 88 saffron {}")


def statement(number: int) -> str:
    return " ".join([*(word for word, every in EVERY.items() if number % every == 0), tag(number), f"b{number}"])


def tag(number: int) -> str:
    return "tag" + "".join(chr(97 + int(digit)) for digit in f"{number % TAGS:03d}")


def contents() -> Iterable[str]:
    yield from HIDDEN.values()
    yield from map(statement, range(CLAIMS))
    for crowd in CROWDS:
        yield from (crowd.format(f"x{number}") for number in range(BETTER_SCORED))
    yield from ("A bucket and a pencil.", "A ladder near the glaze, and a carpet.")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Far more rows than may drive."""
    store = Store(tmp_path_factory.mktemp("large"))
    store.claims(contents())
    yield store
    store.close()


def found(store: Store, query: str, *, limit: int = 100) -> list[tuple[str, bool]]:
    """The excerpts of a page by relevance, each with whether it is an answer."""
    hits = store.hits(query, limit=limit, **PLAIN)
    return [(hit["excerpt"], hit["ranking"]["qualified"]) for hit in hits]


def undriven(store: Store, query: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The same, where every word of the query drives."""
    with monkeypatch.context() as patch:
        patch.setattr(driving, "ROWS_DRIVEN_MAX", NO_LIMIT)
        return found(store, query)


def answers(page: Iterable[tuple[str, bool]]) -> list[str]:
    return [excerpt for excerpt, qualified in page if qualified]


# --- what is found all the same --------------------------------------------------------------------------------------

QUESTIONS = [
    "kiln", "kiln glaze", "kiln glaze shelf cone", "kiln cone", "kiln b17", f"kiln {tag(17)}",
    f"glaze shelf {tag(12)}", f"kiln glaze shelf cone {tag(30)}", f"{tag(7)} kiln {tag(8)}", f"which kiln has {tag(3)}",
    "kiln tmarlin", "KILNS of the glazes", '"kiln glaze"', '"kiln shelf" cone', f'"shelf {tag(3)}" kiln',
    f"kiln-{tag(1)}", "b3000 b3001 kiln glaze", "kiln saffron", "cone shelf saffron", "kiln glaze river ladder carpet",
    "kiln glaze river bucket pencil", "kiln glaze river marlin bucket", "velvet kiln bucket pencil",
]  # fmt: skip


@pytest.mark.proves("retrieval-33")
@pytest.mark.parametrize("query", QUESTIONS)
def test_the_answers_are_those_of_a_search_that_all_words_drive(
    large: Store, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answers(found(large, query)) == answers(undriven(large, query, monkeypatch))


@pytest.mark.proves("retrieval-33")
@pytest.mark.parametrize(
    ("query", "hidden"),
    [
        ("saffron shelf", "all words"),
        ("saffron arrives", "all words"),
        ('"glaze kiln"', "a phrase"),
        ('saffron "glaze kiln"', "a phrase"),
        ("saffron glaze-kiln", "a phrase"),
        ("v1.7.3", "an identifier"),
        ("release v1.7.3", "an identifier"),
        ("saffron SKU-88", "an identifier beside a word"),
        ("saffron SKU-88 kiln", "an identifier beside a word"),
    ],
)
@pytest.mark.parametrize("limit", [1, 10])
def test_the_closest_row_leads_however_many_score_better(large: Store, query: str, hidden: str, limit: int) -> None:
    assert WINDOW_PER_HIT * (limit + 1) < BETTER_SCORED
    assert found(large, query, limit=limit)[0][0] == HIDDEN[hidden]


@pytest.mark.proves("retrieval-34")
def test_of_thousands_of_equal_claims_the_newest_are_shown(large: Store) -> None:
    """The shortest claims with the word score best, all alike."""
    equal = [text for text in map(statement, range(CLAIMS)) if len(text.split()) == 3]
    assert len(equal) > 5_000
    assert answers(found(large, "kiln")) == equal[: -100 - 1 : -1]


def test_a_body_with_all_words_leads_titles_that_score_better(store: Store) -> None:
    store.artifact("untitled", f"The saffron of this year {FILLER} and the kiln.")
    store.write_many("artifact.put", (artifact_input(f"Saffron {number}", "-") for number in range(BETTER_SCORED)))
    (hit,) = store.hits("saffron kiln", limit=1, **PLAIN)
    assert (hit["title"], hit["ranking"]["exact_tier"]) == ("untitled", True)


# --- what is not looked for ------------------------------------------------------------------------------------------


def test_rows_with_common_words_only_are_not_listed_beside_an_answer(
    large: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would not answer: the telling word is not theirs."""
    driven, whole = found(large, "kiln b17"), undriven(large, "kiln b17", monkeypatch)
    assert driven == [(statement(17), True)]
    assert whole[0] == driven[0]
    assert len(whole) == 100
    assert answers(whole) == answers(driven)


def test_past_the_bound_weaker_answers_with_common_words_only_are_not_listed(
    large: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any three of these ordinary words answer. In this store those of the common ones are within the bound."""
    query = "kiln glaze river ladder carpet"
    rare = "A ladder near the glaze, and a carpet."
    assert answers(found(large, query))[0] == rare
    assert len(answers(found(large, query))) == 100
    monkeypatch.setattr(driving, "ROWS_READ_MAX", ROWS_DRIVEN_MAX)
    assert answers(found(large, query)) == [rare]


def test_as_many_words_drive_as_the_bound_allows(large: Store) -> None:
    """What is left without `cone` and the tag could not answer, and claims with `shelf` would be too many to read."""
    assert CLAIMS // 5 + CLAIMS // 3 > ROWS_DRIVEN_MAX > CLAIMS // 5 + CLAIMS // TAGS
    driven = {excerpt for excerpt, _ in found(large, f"kiln cone shelf {tag(1)}")}
    assert any("cone" in excerpt.split() and tag(1) not in excerpt for excerpt in driven)
    assert all({"cone", tag(1)} & set(excerpt.split()) for excerpt in driven)


# --- small stores, any words -----------------------------------------------------------------------------------------

WORDS = ["kiln", "glaze", "shelf", "river", "iron", "velvet", "Lisbon", "设备", "SKU-88"]
WEIGHTS = [40, 20, 10, 8, 4, 4, 4, 4, 3]


@pytest.mark.parametrize("entity_type", ["claim", "artifact"])
@pytest.mark.parametrize("seed", range(8))
def test_every_answer_is_found_whatever_drives_within_the_bound_and_every_exact_one_past_it(
    store: Store, entity_type: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chooser = random.Random(seed)
    texts = [f"{' '.join(chooser.choices(WORDS, WEIGHTS, k=chooser.randint(1, 6)))} t{n}" for n in range(90)]
    if entity_type == "claim":
        store.claims(texts)
    else:
        store.write_many("artifact.put", (artifact_input("untitled", text) for text in texts))
    for _ in range(20):
        words = chooser.sample(WORDS, chooser.randint(1, 5))
        query = " ".join(words)
        whole = answers(undriven(store, query, monkeypatch))
        monkeypatch.setattr(driving, "ROWS_DRIVEN_MAX", chooser.choice([1, 10, 40]))
        monkeypatch.setattr(driving, "ROWS_READ_MAX", NO_LIMIT)
        assert set(answers(found(store, query))) == set(whole), query
        monkeypatch.setattr(driving, "ROWS_READ_MAX", chooser.choice([1, 10, 40]))
        driven = answers(found(store, query))
        assert set(driven) <= set(whole), query
        exact = {text for text in whole if all(word in text for word in words)}
        assert set(driven[: len(exact)]) == exact, query


# --- the same for everybody ------------------------------------------------------------------------------------------


def pages(path: Path, now: str) -> list[bytes]:
    """The answers from a database file, as they are sent, with nothing remembered but what is asked on the way."""
    db = open_reader(path, immutable=False)
    try:
        return [answer_of(db, now, "search", query, {}) for query in QUESTIONS]
    finally:
        db.close()


@pytest.mark.proves("retrieval-35")
def test_a_fresh_process_and_a_warm_one_answer_in_the_same_bytes(large: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.stored(large.now)
    monkeypatch.setattr(driving, "_row_counts", RowCounts())
    cold = pages(path_of(large), now)
    assert pages(path_of(large), now) == cold
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(pages, (path_of(large), now)) == cold


@pytest.mark.proves("retrieval-35")
def test_what_drives_is_chosen_by_the_state_that_is_asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lisbon was the rarer word, and now Jakarta is. Both are names: no answer has one of them only."""
    monkeypatch.setattr(driving, "ROWS_DRIVEN_MAX", 3)
    query = "LISBON JAKARTA KILN"
    store.claims([*(f"Lisbon {n}" for n in "ab"), *(f"Jakarta {n}" for n in "abcd"), "Lisbon, Jakarta"])
    assert {excerpt[:6] for excerpt, _ in found(store, query)} == {"Lisbon"}
    store.claims(f"Lisbon {n}" for n in "cdefgh")
    again = found(store, query)
    assert "Jakarta a" in dict(again)
    assert "Lisbon a" not in dict(again)
    monkeypatch.setattr(driving, "_row_counts", RowCounts())
    assert found(store, query) == again


# --- counts ----------------------------------------------------------------------------------------------------------


def state_of(store: Store) -> tuple[int, int]:
    read = meta.read(store.db)
    return read.history, read.commit_seq


@pytest.mark.proves("retrieval-35")
def test_rows_are_counted_per_state_and_entity_type(store: Store) -> None:
    counts = RowCounts()
    store.claims(["kiln kiln kiln", "Kilns of iron", "glaze"])
    store.artifact("Kiln", "kiln")
    before = state_of(store)
    assert [counts.of(store.db, "claim", before)(term) for term in ("kiln", "glaze", "iron", "no")] == [2, 1, 1, 0]
    assert counts.of(store.db, "artifact", before)("kiln") == 1
    store.claims(["kiln", "no"])
    store.artifact("Other", "kiln")
    after = state_of(store)
    assert [counts.of(store.db, "claim", after)(term) for term in ("kiln", "glaze", "iron", "no")] == [3, 1, 1, 1]
    assert counts.of(store.db, "artifact", after)("kiln") == 2
    assert counts.of(store.db, "claim", before)("kiln") == 2, "what was counted for a state stands for it"


def test_counts_of_the_newest_states_are_kept(store: Store) -> None:
    counts = RowCounts()
    store.claim("kiln")
    history, seq = state_of(store)
    states = [(history, seq + number) for number in range(STATES_KEPT + 1)]
    assert [counts.of(store.db, "claim", state)("kiln") for state in states] == [1] * len(states)
    store.claim("kiln")
    assert [counts.of(store.db, "claim", state)("kiln") for state in reversed(states)] == [1] * STATES_KEPT + [2]


def test_stores_are_told_apart_and_a_nameless_one_is_not_remembered(store: Store, tmp_path: Path) -> None:
    counts, other, nameless = RowCounts(), Store(tmp_path / "other"), apsw.Connection("")
    store.claims(["kiln", "kilns"])
    other.claim("kiln")
    nameless.execute("CREATE TABLE claim_vocabulary (term, doc); INSERT INTO claim_vocabulary VALUES ('kiln', 7)")
    state = state_of(store)
    assert [counts.of(each.db, "claim", state)("kiln") for each in (store, other)] == [2, 1]
    assert counts.of(nameless, "claim", state)("kiln") == 7
    nameless.execute("UPDATE claim_vocabulary SET doc = 8")
    assert counts.of(nameless, "claim", state)("kiln") == 8
    nameless.close()
    other.close()
