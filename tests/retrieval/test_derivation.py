"""Text that quotes the store: how it is recognised, marked, and kept from outweighing what it quotes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from urllib.parse import quote

import apsw
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree import ids, limits
from memoree.citation import ArtifactCitation, Span, claim_citation
from memoree.database import derivations
from memoree.retrieval.derivation import cited_in, originals_first

from .store import Json, Store

ARTIFACT, REVISION = "art_01M8Q8G145ZFP66BEW09CXCGMZ", "arev_01M8Q8G145ZFP66BEW09CXCGN0"
CLAIM, CLAIM_REVISION = "clm_01M8Q8G145ZFP66BEW09CXCGN1", "crev_01M8Q8G145ZFP66BEW09CXCGN2"
WHOLE = str(ArtifactCitation(ARTIFACT, REVISION))
PART = str(ArtifactCitation(ARTIFACT, REVISION, Span(4, 23)))
OF_CLAIM = claim_citation(CLAIM, CLAIM_REVISION)


WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "Markdown": lambda text: text.replace("_", "\\_"),
    "Markdown in JSON": lambda text: orjson.dumps(text.replace("_", "\\_")).decode(),
    "JSON with escaped slashes": lambda text: text.replace("/", "\\/"),
    "a URL": lambda text: text.replace("@", "%40"),
    "a part of a URL": lambda text: quote(text, safe=""),
    "a part of a URL, lower case": lambda text: quote(text, safe="").replace("%3A", "%3a").replace("%2F", "%2f"),
    "HTML": lambda text: text.replace("@", "&#64;"),
    "HTML by name": lambda text: text.replace("@", "&commat;"),
    "HTML in full": lambda text: "".join(c if c.isalnum() or c == "-" else f"&#x{ord(c):X};" for c in text),
    "capitals": lambda text: text.replace("memoree:", "MEMOREE:"),
    "a heading": lambda text: text.replace("memoree:", "Memoree:"),
}


def cited(text: str) -> list[str]:
    return [str(each) for each in cited_in(text)]


def citation_of(record: Json, span: Span | None = None) -> str:
    if "claim_id" in record:
        return claim_citation(record["claim_id"], record["revision_id"])
    return str(ArtifactCitation(record["artifact_id"], record["revision_id"], span))


def marks(store: Store, record: Json) -> list[str]:
    found = store.db.execute("SELECT row_id FROM artifact_revisions WHERE revision_id = ?", (record["revision_id"],))
    return derivations.marked(store.db, found.get)


# --- recognition --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("citation", [WHOLE, PART, OF_CLAIM])
@pytest.mark.parametrize("around", ["{}", "see {}.", "`{}`", "[x]({})", '"{}"', "> {}\n", "日本{}語", "<{}>"])
def test_a_citation_is_recognised_wherever_it_stands(citation: str, around: str) -> None:
    assert cited(around.format(citation)) == [citation]
    assert cited(orjson.dumps({"text": around.format(citation)}).decode().replace("/", "\\/")) == [citation]


@pytest.mark.fault_class(63)
@pytest.mark.parametrize("citation", [WHOLE, PART, OF_CLAIM])
@pytest.mark.parametrize("medium", WRITTEN)
def test_a_citation_is_the_same_however_it_is_written(citation: str, medium: str) -> None:
    written = WRITTEN[medium](citation)
    assert cited(f"see {written}, and {citation}") == [citation, citation]


def test_citations_come_in_the_order_in_which_they_stand() -> None:
    assert cited(f"{PART} {OF_CLAIM} {WHOLE} {PART}") == [PART, OF_CLAIM, WHOLE, PART]


@pytest.mark.parametrize(
    "text",
    [
        "",
        WHOLE.lower(),
        WHOLE[:-1],
        f"{WHOLE}X",
        f"{OF_CLAIM}0",
        WHOLE.replace("@", "#"),
        OF_CLAIM.replace("claim/", "artifact/"),
        f"memoree://artifact/{REVISION}@{ARTIFACT}",
        f"{ARTIFACT}@{REVISION}",
        f"{WHOLE}#5-5",
        f"{WHOLE}#9-4",
        "memoree://artifact/a@b",
        WHOLE.replace("@", "&commat"),
        WHOLE.replace("@", "%4"),
        WHOLE.replace("@", "&#640;"),
        WHOLE.replace("_", "\\\\\\_"),
        WHOLE.upper(),
    ],
)
def test_what_is_no_citation_of_a_store_like_this_is_not(text: str) -> None:
    assert cited(text) == []


def test_what_follows_a_citation_and_is_no_span_is_left() -> None:
    assert cited(f"{WHOLE}#heading {WHOLE}#{'9' * 30}-{'9' * 31}") == [WHOLE, WHOLE]


@given(st.lists(st.sampled_from([WHOLE, PART, OF_CLAIM, " ", "\n", "x"]) | st.text(max_size=4), max_size=20))
def test_no_text_makes_a_citation_up(pieces: list[str]) -> None:
    named = {citation.partition("#")[0] for citation in cited("".join(pieces))}
    assert named <= {WHOLE, OF_CLAIM}


def test_recognition_is_linear() -> None:
    for piece in ("memoree:" + "\\" * 40, "MEMOREE%3A&#47;&sol;", "memoree:&#x2f;&#x2F;artifact&#", "memoree%" * 5):
        hostile = (f"memoree://artifact/art_{'0' * 25}@{piece}") * 10_000
        started = time.process_time()
        assert cited(hostile) == []
        assert time.process_time() - started < 1


# --- marks --------------------------------------------------------------------------------------------------------


@pytest.mark.fault_class(63)
def test_a_text_is_marked_with_what_it_quotes_of_earlier_commits(store: Store) -> None:
    claim, source = store.claim("The cone bent."), store.artifact("Log", "The cone bent at 21:40.")
    quoted = [citation_of(source, Span(4, 23)), citation_of(claim), citation_of(source)]
    copy = store.artifact("Copy", f"zebra {OF_CLAIM} {' '.join(quoted)} {citation_of(source, Span(0, 24))}")
    assert marks(store, copy) == quoted
    assert marks(store, source) == []
    (hit,) = store.hits("zebra")
    assert hit["provenance"]["derived_from"] == quoted


def test_a_long_text_is_read_across_its_chunks(store: Store) -> None:
    claim = citation_of(store.claim("The cone bent."))
    copy = store.artifact("Log", "x" * (limits.CHUNK_BYTES_MAX - 20) + claim + "-" * 20_000)
    split = store.db.execute("SELECT min(end_byte) FROM artifact_chunks WHERE end_byte > 0").get
    assert limits.CHUNK_BYTES_MAX - 20 < split < limits.CHUNK_BYTES_MAX - 20 + len(claim)
    assert marks(store, copy) == [claim]


def test_only_so_many_citations_are_kept(store: Store) -> None:
    claims = store.claims(f"cone {number}" for number in range(limits.DERIVATION_CITATIONS_MAX + 6))
    citations = [citation_of(claim) for claim in claims]
    copy = store.artifact("Copy", "\n".join(citations))
    assert marks(store, copy) == citations[: limits.DERIVATION_CITATIONS_MAX]


@pytest.mark.fault_class(63)
def test_invented_citations_hide_no_real_ones(store: Store) -> None:
    claims = [citation_of(claim) for claim in store.claims(["cone", "glaze"])]
    count = 2 * limits.DERIVATION_BATCH_ITEMS_MAX + 6
    invented = [claim_citation(ids.new_id("clm"), ids.new_id("crev")) for _ in range(count)]
    copy = store.artifact("Copy", " ".join([*invented[:9], claims[0], *invented[9:], claims[1], claims[0]]))
    assert marks(store, copy) == claims


def test_marks_belong_to_revisions(store: Store) -> None:
    first = store.artifact("Note", "zebra on its own")
    wanted = {"artifact_id": first["artifact_id"], "if_revision": first["revision_id"]}
    content = {"type": "text", "data": f"zebra after {citation_of(first)}"}
    second = store.write("artifact.revise", wanted | {"content": content})
    assert (marks(store, first), marks(store, second)) == ([], [citation_of(first)])


def test_bytes_that_are_no_text_quote_nothing(store: Store) -> None:
    claim = citation_of(store.claim("The cone bent."))
    assert marks(store, store.artifact("Dump", claim.encode(), media_type="application/octet-stream")) == []
    assert marks(store, store.artifact("Dump", b"\xff" + claim.encode(), media_type="text/plain")) == []


@pytest.mark.fault_class(63)
@pytest.mark.parametrize("medium", WRITTEN)
def test_marks_are_found_again_however_a_citation_is_written(store: Store, medium: str) -> None:
    """Wherever the end of a chunk lies in the name of the scheme, and whatever stands before it."""
    claim = citation_of(store.claim("The cone bent."))
    written = WRITTEN[medium](claim)
    store.artifact("Note", written)
    for before in range(limits.CHUNK_BYTES_MAX - 12, limits.CHUNK_BYTES_MAX + 4):
        store.artifact("Note", f"\0é{'x' * before}{written}{'-' * 9000}")
    marked = rows(store.db)
    assert [citations for _, citations in marked] == [orjson.dumps([claim]).decode()] * 17
    store.db.execute("DELETE FROM derivations")
    derivations.rebuild(store.db)
    assert rows(store.db) == marked


def test_marks_can_be_removed_and_made_again(store: Store) -> None:
    claim = citation_of(store.claim("The cone bent."))
    for body in (f"inline {claim}", f"in a blob {claim} {'cone ' * 5000}", "nothing"):
        store.artifact("Note", body)
    before = rows(store.db)
    assert len(before) == 2
    for row, _ in before:
        derivations.remove(store.db, row)
    assert rows(store.db) == []
    derivations.rebuild(store.db)
    assert rows(store.db) == before


def rows(db: apsw.Connection) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = db.execute("SELECT * FROM derivations ORDER BY revision_row").fetchall()
    return found


# --- order --------------------------------------------------------------------------------------------------------


def ordered(names: str) -> str:
    """Items: a letter, how much it matches, and after a colon the letters of what it quotes."""
    found = originals_first(
        names.split(),
        match=lambda item: (int(item[1]),),
        row=lambda item: ord(item[0]),
        quoted=lambda item: [ord(letter) for letter in item[3:]],
    )
    return " ".join(found)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A2 B1 C2", "A2 B1 C2"),
        ("a2:B B2", "B2 a2:B"),
        ("a2:D b2:C C2 D2 E1", "C2 b2:C D2 a2:D E1"),
        ("a2:BD B2 C2 D2", "B2 C2 D2 a2:BD"),
        ("a3:B B2 C1", "a3:B B2 C1"),
        ("a2:B C2 D2", "a2:B C2 D2"),
        ("a2:B b2:B B2", "B2 a2:B b2:B"),
        ("", ""),
    ],
)
def test_a_copy_stands_behind_what_it_quotes_where_that_matches_as_well(before: str, after: str) -> None:
    assert ordered(before) == after


def test_any_order_keeps_its_originals_and_their_order() -> None:
    chooser = random.Random(7)
    for _ in range(200):
        letters = chooser.sample("ABCDEFabcdef", 9)
        items = [f"{letter}{chooser.randrange(3)}" for letter in letters]
        items = [f"{item}:{chooser.choice('ABCDEF')}" if item[0].islower() else item for item in items]
        found = ordered(" ".join(items)).split()
        assert sorted(found) == sorted(items)
        assert [item for item in found if item[0].isupper()] == [item for item in items if item[0].isupper()]


@pytest.mark.fault_class(63)
@pytest.mark.parametrize("recency", [True, False])
def test_copies_of_an_answer_stand_behind_what_they_copy(store: Store, recency: bool) -> None:
    claim = store.claim("The walrus cone bent.")
    source = store.artifact("Log", "walrus log: the cone bent at 21:40. " + "filler words here. " * 40)
    copied = "\n".join(f"{hit['citation']} {hit['excerpt']}" for hit in store.hits("walrus cone"))
    for number in range(6):
        store.advance(days=30)
        store.artifact("walrus cone walrus cone", f"{copied} walrus cone walrus cone {number}")
    hits = store.hits("walrus cone", recency={"enabled": recency})
    assert {hit["entity_id"] for hit in hits[:2]} == {claim["claim_id"], source["artifact_id"]}
    assert ["derived_from" in hit["provenance"] for hit in hits] == [False] * 2 + [True] * 6
