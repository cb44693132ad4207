"""What is recalled of episodes: at present, as of an instant, and of what a filter leaves (MemoryProtocol §6, §7)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ulid import ULID

from memoree import limits
from memoree.database import episodes
from memoree.episodes.chunks import chunk_id
from memoree.errors import Code, MemoreeError
from operations.bench import Json

from .library import Library

RARE = "xqzvport"
DISTINCT_WORDS = "".join(f" wor{number:02}" for number in range(100))
"""A text is longer, and its score lower, by each."""


@pytest.mark.proves("memoryprotocol-43")
def test_only_what_was_written_by_then_is_recalled(library: Library) -> None:
    before = library.now()
    library.ingest("the kiln reached cone 6", "x")
    between = library.now()
    library.ingest("the kiln reached cone 7", "y")
    assert library.sources("kiln cone", as_of=before) == []
    assert library.sources("kiln cone", as_of=between) == ["x"]
    assert sorted(library.sources("kiln cone", as_of=library.now())) == ["x", "y"]
    assert sorted(library.sources("kiln cone")) == ["x", "y"]


def test_what_is_written_later_in_the_same_millisecond_is_not_seen(library: Library) -> None:
    library.ingest("the first of two", "x")
    as_of = library.now()
    library.clock.advance(milliseconds=-1)
    library.ingest("the second of two", "y")
    assert library.sources("of two", as_of=as_of) == ["x"], "its reading has the counter 1, or a later one"


@pytest.mark.proves("memoryprotocol-33")
def test_replaced_content_is_recalled_as_of_before_only(library: Library) -> None:
    first = library.ingest("the zanzibar ferry leaves at nine", source="plan")
    before = library.now()
    library.ingest("the quokka ferry leaves at ten", source="plan", id=first["episode_id"])
    assert library.texts("zanzibar") == []
    assert library.texts("quokka") == ["the quokka ferry leaves at ten"]
    assert library.texts("zanzibar", as_of=before) == ["the zanzibar ferry leaves at nine"]
    assert library.texts("quokka", as_of=before) == []


@pytest.mark.proves("memoryprotocol-44")
def test_what_was_forgotten_is_recalled_as_of_before_and_what_was_erased_never(library: Library) -> None:
    forgotten, erased = library.ingest("zanzibar one", "x"), library.ingest("zanzibar two", "y")
    before = library.now()
    library.forget(forgotten)
    library.erase(erased)
    assert library.sources("zanzibar") == []
    assert library.sources("zanzibar", as_of=before) == ["x"]
    assert library.sources("zanzibr", as_of=before) == ["x"], "misspelled as well"


WORDS = ("amber", "basalt", "cobalt", "dolomite")
ACTIONS = st.tuples(st.sampled_from("iiirrfe"), st.integers(0, 5), st.sampled_from(WORDS), st.sampled_from(WORDS))


@settings(max_examples=40, deadline=None)
@given(st.lists(ACTIONS, min_size=1, max_size=14))
@pytest.mark.proves("memoryprotocol-43", "memoryprotocol-44")
def test_every_past_commit_is_recalled_as_it_was(actions: list[tuple[str, int, str, str]]) -> None:
    with TemporaryDirectory() as directory:
        library = Library(Path(directory))
        try:
            _live_through(library, actions)
        finally:
            library.close()


def _live_through(library: Library, actions: list[tuple[str, int, str, str]]) -> None:
    """Ingests, replacements, forgettings and erasures; then each instant is asked about."""
    here: dict[str, tuple[Json, str]] = {}
    past = [(library.now(), dict(here))]
    erased: set[str] = set()
    for kind, number, first, second in actions:
        ids = sorted(here)
        text = f"{first} {second}"
        if kind == "i" or not ids:
            episode = library.ingest(text)
            here[episode["episode_id"]] = (episode, text)
        elif kind == "r":
            episode = library.ingest(text, id=ids[number % len(ids)])
            here[episode["episode_id"]] = (episode, text)
        else:
            episode, _ = here.pop(ids[number % len(ids)])
            (library.forget if kind == "f" else library.erase)(episode)
            erased |= {episode["artifact_id"]} if kind == "e" else set()
        past.append((library.now(), dict(here)))
    for as_of, was in past:
        for word in WORDS:
            expected = sorted(
                (episode_id, text)
                for episode_id, (episode, text) in was.items()
                if word in text and episode["artifact_id"] not in erased
            )
            found = library.recall(word, k=50, as_of=as_of)
            assert sorted((hit["episode_id"], hit["text"]) for hit in found) == expected


def test_the_commit_of_a_reading_is_the_newest_up_to_it(library: Library) -> None:
    for number in range(20):
        library.ingest(f"note {number}")
    readings = [(int(seq), int(hlc)) for seq, hlc in library.db.execute("SELECT commit_seq, hlc FROM events")]
    for commit_seq, reading in readings:
        assert episodes.commit_at(library.db, reading) == commit_seq
        assert episodes.commit_at(library.db, reading - 1) == commit_seq - 1
    assert episodes.commit_at(library.db, 2**63 - 1) == readings[-1][0]


@pytest.mark.proves("memoryprotocol-55")
def test_a_filter_on_the_source_is_exact_or_a_prefix(library: Library) -> None:
    sources = ["a", "A", "ab", "a%", "a_", "b", "", "á", "helios:fs/x", "helios:fsx", "a\U0010ffff", "a\U0010ffffz"]
    for source in sources:
        library.ingest("kiln log", source)
    for value in ("a", "A", "a%", "a_", "", "á", "nothing"):
        assert library.sources("kiln", k=50, filter=f"source = '{value}'") == [
            each for each in sources if each == value
        ]
    for prefix in ("", "a", "a_", "á", "helios:fs/", "a\U0010ffff", "nothing"):
        expected = sorted(each for each in sources if each.startswith(prefix))
        assert sorted(library.sources("kiln", k=50, filter=f"source LIKE '{prefix}%'")) == expected


@pytest.mark.proves("memoryprotocol-58")
@pytest.mark.parametrize(
    "value", ["two words", " padded ", "50 %", "100%", 'say "hi"', "kjøkken/日記", "a LIKE b", "x = y"]
)
def test_any_value_without_a_quote_matches_exactly(library: Library, value: str) -> None:
    library.ingest("kiln log", value, metadata={"said": value})
    other = value.swapcase() if value.swapcase() != value else value + "x"
    library.ingest("kiln log", other, metadata={"said": other})
    for field in ("source", "metadata.said"):
        assert library.sources("kiln", filter=f"  {field} = '{value}'  ") == [value]


def test_metadata_is_compared_where_it_is_text(library: Library) -> None:
    keys = ("k", 'quo"ted', "a.b", "", "日", "$", "line\nbreak", "nul\0")
    for number, key in enumerate(keys):
        library.ingest("kiln log", str(number), metadata={key: "v1"})
    library.ingest(
        "kiln log", "number", metadata={"k": 1, "list": ["v1"], "no": None, "yes": True, "deep": {"k": "v1"}}
    )
    for number, key in enumerate(keys):
        assert library.sources("kiln", filter=f"metadata.{key} = 'v1'") == [str(number)]
        assert library.sources("kiln", filter=f"metadata.{key} LIKE 'v%'") == [str(number)]
        assert library.sources("kiln", filter=f"metadata.{key} = 'v'") == []
    for key, value in (("k", "1"), ("list", "v1"), ("yes", "true"), ("yes", "1"), ("no", ""), ("deep", "v1")):
        assert library.sources("kiln", filter=f"metadata.{key} = '{value}'") == []
    assert library.sources("kiln", filter="metadata.list LIKE '%'") == []


LONG = (
    "# Guide\n\nkiln intro\n\n" + "filler words here. " * 150 + "\n\n## Firing\n\nkiln logs\n\n" + "more filler. " * 200
)


def test_a_filter_on_chunks_leaves_those_that_meet_it(library: Library) -> None:
    episode = library.ingest(LONG, "long")
    library.ingest("kiln elsewhere", "short")
    (firing,) = [hit for hit in library.recall("kiln", k=50) if hit["heading_path"] == ["Guide", "Firing"]]
    for filter in ("heading_path = 'Firing'", "heading_path LIKE 'Fir%'"):
        (hit,) = library.recall("kiln", filter=filter)
        assert hit | {"score": 0} == firing | {"score": 0}
    assert library.sources("kiln", filter="heading_path = 'Fir'") == []
    assert library.texts("kiln", filter="text = 'kiln elsewhere'") == ["kiln elsewhere"]
    assert library.texts("kiln", filter="text LIKE 'kiln else%'") == ["kiln elsewhere"]
    assert sorted(library.sources("kiln", filter="offset = '0'")) == ["long", "short"]
    assert {
        hit["episode_id"] for hit in library.recall("kiln", filter=f"episode_id = '{episode['episode_id'].lower()}'")
    } == {episode["episode_id"]}
    assert library.sources("kiln", filter="episode_id LIKE '0%'") != []


def test_chunks_of_a_blob_have_their_headings(library: Library) -> None:
    body = "# Guide\n\n" + "filler words here. " * 1000 + f"\n\n## Far\n\n{RARE} at last\n"
    assert len(body) > limits.INLINE_BODY_BYTES_MAX
    library.ingest(body)
    (hit,) = library.recall(RARE)
    assert hit["heading_path"][0] == "Guide"
    assert library.recall(RARE, filter="heading_path = 'Guide'") == [hit]


@pytest.mark.proves("memoryprotocol-59")
@pytest.mark.parametrize("filter", ["nothing = 'a'", "Source = 'a'", "metadata = 'a'", "nothing LIKE '%'", "x y = ''"])
def test_an_unknown_field_matches_nothing(library: Library, filter: str) -> None:
    library.ingest("kiln log", "a")
    assert library.recall("kiln", filter=filter) == []


@pytest.mark.proves("memoryprotocol-60")
@pytest.mark.parametrize(
    "filter", ["source = 'wanted'", "source LIKE 'want%'", "metadata.kept = 'yes'", "offset = '0'"]
)
def test_a_filter_narrows_before_the_cut(library: Library, filter: str) -> None:
    calls = [
        _kiln(library, f"kiln {number}", f"other {number}", {"kept": "no"}, padded=filter) for number in range(500)
    ]
    calls += [
        _kiln(library, f"a longer text about a kiln and {number}" + DISTINCT_WORDS, "wanted", {"kept": "yes"})
        for number in range(5)
    ]
    library.clock.advance(milliseconds=1)
    library.commit(calls)
    assert library.sources("kiln", k=5, filter=filter) == ["wanted"] * 5
    assert "wanted" not in library.sources("kiln", k=5), "the others are better"


def _kiln(library: Library, text: str, source: str, metadata: Json, *, padded: str = "") -> Any:
    """With `offset` the word stands in the second chunk of the others, and its first chunk has it in no place."""
    if padded.startswith("offset"):
        text = "filler words here. " * 130 + "\n\n" + f"{text} " * 60
    return library.request(
        "episode.ingest", {"source": source, "content": {"type": "text", "data": text}, "metadata": metadata}
    )


@pytest.mark.proves("memoryprotocol-36", "memoryprotocol-38")
def test_a_revision_gives_its_best_chunk_before_any_gives_its_others(library: Library) -> None:
    """Then a better revision's chunk stands behind a worse revision's, and its score must not show it."""
    section = "kiln and glaze. " + "filler words here. " * 130
    for source in ("one", "two"):
        library.ingest("\n\n".join(f"## S{number}\n\n{section}" for number in range(4)), source)
    library.ingest("a kiln, a glaze", "short")
    hits = library.recall("kiln glaze", k=20)
    assert sorted(hit["source"] for hit in hits[:3]) == ["one", "short", "two"]
    assert sorted(hit["source"] for hit in hits[3:]) == ["one"] * 3 + ["two"] * 3
    assert len({bytes(hit["id"]) for hit in hits}) == 9
    scores = [hit["score"] for hit in hits]
    assert scores == sorted(scores, reverse=True)
    for k in (1, 3, 5):
        assert library.recall("kiln glaze", k=k) == hits[:k]


@pytest.mark.proves("memoryprotocol-38")
def test_scores_never_rise(library: Library) -> None:
    words = ("kiln", "glaze", "cone", "firing", "wedge")
    for number, (first, second) in enumerate(itertools.product(words, words)):
        library.ingest(f"{first} {second} " * (number % 4 + 1) + "filler. " * (number % 7))
    for query in ("kiln", "kiln glaze", "kiln glaze cone firing", '"kiln glaze"', "firring glaze"):
        scores = [hit["score"] for hit in library.recall(query, k=100)]
        assert scores
        assert scores == sorted(scores, reverse=True)


@pytest.mark.proves("memoryprotocol-45")
@pytest.mark.parametrize(
    ("text", "query"),
    [
        (f"the code is {RARE}-77", RARE),
        ("deployment of the warehouse", "deploymnt warehouse"),
        ("東京都の陶芸教室", "陶芸"),
        ("Straße nach Köln", "STRASSE koln"),
    ],
)
def test_words_are_found_as_everywhere_else(library: Library, text: str, query: str) -> None:
    library.ingest("something else altogether")
    library.ingest(text)
    assert library.texts(query) == [text]


@pytest.mark.proves("memoryprotocol-39")
@pytest.mark.parametrize("query", ["", " ", "?!", "—", "\n\t", "🙂"])
def test_a_query_without_a_word_finds_nothing(library: Library, query: str) -> None:
    library.ingest("kiln log ?! 🙂")
    assert library.recall(query) == []


def test_a_query_that_is_too_long_is_refused(library: Library) -> None:
    with pytest.raises(MemoreeError) as refused:
        library.recall("kiln " * limits.QUERY_BYTES_MAX)
    assert refused.value.code is Code.INVALID_REQUEST


def test_other_kinds_are_never_recalled(library: Library) -> None:
    library.put("kiln log")
    library.claim("The kiln is hot.")
    assert library.recall("kiln") == []


def test_an_episode_that_was_put_or_revised_as_an_artifact_is_recalled(library: Library) -> None:
    episode = library.put("kiln log", kind="episode", title="Firing 12")
    before = library.now()
    library.revise(episode, "glaze log")
    assert library.texts("kiln") == []
    assert library.texts("glaze") == ["glaze log"]
    assert library.texts("kiln", as_of=before) == ["kiln log"]
    assert library.sources("glaze") == ["Firing 12"]


def test_a_chunk_keeps_its_id(library: Library) -> None:
    episode = library.ingest(LONG)
    ids = [bytes(hit["id"]) for hit in library.recall("kiln", k=50)]
    library.ingest("kiln elsewhere")
    assert set(ids) <= {bytes(hit["id"]) for hit in library.recall("kiln", k=50)}
    assert len(ids) == len(set(ids)) == 2
    revision = ULID.from_str(episode["revision_id"].removeprefix("arev_"))
    assert {ULID(each).milliseconds for each in ids} == {revision.milliseconds}
    assert chunk_id(episode["revision_id"], 0) != chunk_id(episode["revision_id"], 1)


def test_rows_are_read_as_far_as_they_are_shown(library: Library) -> None:
    """Of a store whose every episode matches, and without a filter, the window is read and no more."""
    calls = [_kiln(library, "kiln" + DISTINCT_WORDS[: 6 * (number % 100)], "s", {}) for number in range(2000)]
    library.commit(calls)
    assert len(library.recall("kiln", k=3)) == 3  # what it keeps for a state is there now
    assert _steps(library.db, lambda: library.recall("kiln", k=3)) < _steps(
        library.db, lambda: library.recall("kiln", k=3, filter="source = 'none'")
    )


def _steps(db: apsw.Connection, work: Callable[[], object]) -> int:
    steps = itertools.count()
    db.set_progress_handler(lambda: next(steps) < 0, 100, id="steps")
    try:
        work()
    finally:
        db.set_progress_handler(None, id="steps")
    return next(steps)
