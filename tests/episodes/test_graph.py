"""Graph mode: what relations and evidence lead to (MemoryProtocol §6.3)."""

from __future__ import annotations

from typing import Any

import pytest

from memoree.episodes.entities import entities
from memoree.retrieval import episode_graph

from .library import Library

QUERY = "what of Alice"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("what did Alice do at Acme last April?", ["Alice", "Acme", "April"]),
        ("What is going on", []),
        ("Alice", []),
        ("show (Alice) 'Bob's' «Carol», _Dave_ 3Com iPhone 42", ["Alice", "Bob's", "Carol", "Dave"]),
        ("the Alice and Alice again", ["Alice"]),
        ("see émile Émile 日本 Zoë", ["Zoë"]),
        ("", []),
        (f"see Cone{'_' * 500_000}6", [f"Cone{'_' * 500_000}6"]),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.proves("memoryprotocol-41")
def test_entities_begin_in_upper_case_and_not_the_query(query: str, expected: list[str]) -> None:
    assert entities(query) == expected


def walked(library: Library, query: str = QUERY, **how: Any) -> list[tuple[str, str]]:
    """Sources and legs of the hits, in their order."""
    return [(hit["source"], hit["source_op"]) for hit in library.recall(query, mode="graph", **how)]


def test_episodes_are_reached_over_relations_and_evidence_in_two_steps(library: Library) -> None:
    first = library.ingest("she opened the shop", "people/alice")
    related = library.ingest("a ledger", "ledger")
    library.relate(first, related)
    backwards = library.ingest("an inventory", "inventory")
    library.relate(backwards, first)
    cited = library.ingest("two keys", "keys")
    library.cite("The shop has two keys.", first, cited)
    second = library.ingest("a receipt", "receipt")
    library.relate(related, second)
    third = library.ingest("too far", "far")
    library.relate(second, third)
    library.ingest("unrelated", "else")
    found = walked(library)
    assert found[0] == ("people/alice", "Graph")
    assert sorted(found[1:3]) == [("inventory", "Graph"), ("ledger", "Graph")]
    assert sorted(found[3:]) == [("keys", "Graph"), ("receipt", "Graph")]
    scores = [hit["score"] for hit in library.recall(QUERY, mode="graph")]
    assert scores == sorted(scores, reverse=True)
    assert library.recall(QUERY) == [] or library.sources(QUERY) == ["people/alice"]


def test_a_claim_that_names_an_entity_leads_to_what_it_cites(library: Library) -> None:
    episode = library.ingest("the lease was signed in March", "lease")
    library.cite("Alice signed the lease.", episode)
    assert walked(library) == [("lease", "Graph")]
    assert library.recall(QUERY) == []


def test_an_episode_that_answers_leads_on_and_stands_first(library: Library) -> None:
    answer = library.ingest("Alice opened the shop", "talk")
    library.ingest("Alice closed the door", "door")
    neighbour = library.ingest("a ledger", "ledger")
    library.relate(answer, neighbour)
    assert walked(library, "who is Alice") == [("door", "Graph"), ("talk", "Graph"), ("ledger", "Graph")]
    assert walked(library, "who is Alice", k=1) == [("door", "Graph")]


def test_what_is_no_episode_is_no_step(library: Library) -> None:
    """Nor is a claim that cites none: the protocol knows episodes only."""
    first, last = library.ingest("she opened the shop", "alice"), library.ingest("a ledger", "ledger")
    note, claim = library.put("a note"), library.claim("Alice is tall.")
    for between in (note, claim):
        library.relate(first, between)
        library.relate(between, last)
    assert walked(library) == [("alice", "Graph")]


@pytest.mark.proves("memoryprotocol-44")
def test_the_graph_is_that_of_its_time(library: Library) -> None:
    first, second = library.ingest("she opened the shop", "alice"), library.ingest("a ledger", "ledger")
    apart = library.now()
    library.relate(first, second)
    beyond = library.ingest("a receipt", "receipt")
    library.relate(second, beyond)
    claim = library.cite("Alice keeps two keys.", library.ingest("two keys", "keys"))
    together = library.now()
    library.forget(second)
    library.write("claim.retract", {"claim_id": claim["claim_id"], "reason": "not so"})
    assert walked(library, as_of=apart) == [("alice", "Graph")]
    then = sorted(source for source, _ in walked(library, as_of=together))
    assert then == ["alice", "keys", "ledger", "receipt"]
    assert walked(library) == [("alice", "Graph")], "what was forgotten leads nowhere"


def test_a_filter_leaves_of_the_reached_what_meets_it(library: Library) -> None:
    first, second = library.ingest("she opened the shop", "people/alice"), library.ingest("a ledger", "ledger")
    library.relate(first, second)
    assert walked(library, filter="source = 'ledger'") == [("ledger", "Graph")]
    assert walked(library, filter="text LIKE 'she%'") == [("people/alice", "Graph")]
    assert walked(library, filter="source = 'none'") == []


def test_the_walk_ends_with_its_room(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_graph, "NODES_MAX", 5)
    first = library.ingest("she opened the shop", "alice")
    for number in range(8):
        library.relate(first, library.ingest("a ledger", str(number)))
    assert [source for source, _ in walked(library)] == ["alice", "0", "1", "2", "3"]


def test_a_query_that_names_nothing_is_answered_by_its_words(library: Library) -> None:
    first, second = library.ingest("alice opened the shop", "talk"), library.ingest("a ledger", "ledger")
    library.relate(first, second)
    assert walked(library, "alice opened") == [("talk", "Keyword")]
