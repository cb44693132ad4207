"""The choice of what is shown: repetition goes, what differs stays, no source takes every place."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree.retrieval.window import SAME_SOURCE_MAX, Answer, choose


def answers(statements: Sequence[str], disputed: Sequence[int] = ()) -> list[Answer]:
    """Of sources that differ, so that only their words decide."""
    return [Answer(statement, f"source {n}", n in disputed) for n, statement in enumerate(statements)]


def shown(*statements: str, disputed: Sequence[int] = ()) -> list[int]:
    return choose(answers(statements, disputed), 10).positions


@pytest.mark.proves("retrieval-52")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Cranes are inspected monthly.", "Cranes are inspected monthly"),
        ("Cranes are\n  inspected monthly", "cranes ARE inspected monthly!"),
        ("Kräne werden monatlich geprüft", "KRÄNE werden monatlich geprüft."),
        ("設備は毎月点検する。", "設備は毎月点検する"),
        ("The port inspects every crane monthly", "The port inspects every single crane monthly"),
        ("Set `retry_limit` before the first run - today", "Set retry_limit before the very first run – today"),
        ("The timeout was raised from 30 to 45 seconds", "The timeout was raised again from 30 to 45 seconds"),
    ],
)
def test_what_is_said_again_is_shown_once_and_the_better_one_stays(first: str, second: str) -> None:
    assert shown(first, second) == [0]


@pytest.mark.proves("retrieval-53")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "The webhook call timeout is 30 seconds in production",
            "The webhook call timeout is 45 seconds in production",
        ),
        ("The webhook call timeout is ٣٠ in production", "The webhook call timeout is ٤٥ in production"),
        ("The nightly job always deletes old log files", "The nightly job never deletes old log files"),
        ("The port inspects every crane monthly", "The port doesn't inspect every crane monthly"),
        ("The port inspects all its cranes here monthly", "The port can’t inspect all its cranes here monthly"),
        ("Der Server läuft nachts im Keller", "Der Server läuft nachts nicht im Keller"),
        ("Set retry_limit before the first nightly run", "Set retry_delay before the first nightly run"),
        (
            "The note of that day mentions kiln/log.txt and nothing else of any interest",
            "The note of that day mentions kiln/logs.txt and nothing else of any interest",
        ),
        (
            "The main store of the billing team keeps nightly copies in the Dublin region for years",
            "The main store of the billing team keeps nightly copies in the Frankfurt region for years",
        ),
        ("tapir one", "tapir two"),
        ("The tapir sleeps", "The tapir sleeps here"),
        ("offset +5", "offset -5"),
        ("The port is open?", "The port is open"),
        ("Storage room temperature threshold is -5 degrees", "Storage room temperature threshold is 5 degrees"),
        ("Storage room temperature threshold is -5 degrees", "Storage room temperature threshold is ±5 degrees"),
        ("Storage room temperature threshold is –.5 degrees", "Storage room temperature threshold is .5 degrees"),
        ("Storage room temperature threshold is ~ 5 degrees", "Storage room temperature threshold is 5 degrees"),
        ("Retention must be >= 30 days for audit records", "Retention must be <= 30 days for audit records"),
        ("Retention must be ≥30 days for audit records", "Retention must be ≤30 days for audit records"),
        ("Retention must be != 30 days for audit records", "Retention must be == 30 days for audit records"),
        ("The monthly crane budget rises by 5%", "The monthly crane budget rises by 5"),
        ("The monthly crane budget rises by €5", "The monthly crane budget rises by £5"),
        ("Latency of alpha > latency of beta cluster", "Latency of alpha < latency of beta cluster"),
        ("✅ the crane inspection of this month", "❌ the crane inspection of this month"),
    ],
)
def test_what_differs_in_what_decides_is_shown_twice(first: str, second: str) -> None:
    assert shown(first, second) == [0, 1]


@pytest.mark.proves("retrieval-53")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Alice Brown manages Carol White directly", "Carol White manages Alice Brown directly"),
        ("The timeout was raised from 30 to 45 seconds", "The timeout was raised from 45 to 30 seconds"),
        ("The threshold moved from -5 to 5 degrees", "The threshold moved from 5 to -5 degrees"),
        ("Server alpha depends on server beta cluster nightly", "Server beta depends on server alpha cluster nightly"),
        (
            "The migration to MySQL from Postgres is finished now",
            "The migration from MySQL to Postgres is finished now",
        ),
        ("Alice Brown manages Carol White directly", "Carol White directly manages the old Alice Brown"),
    ],
)
def test_the_same_words_in_another_order_are_another_fact(first: str, second: str) -> None:
    assert shown(first, second) == [0, 1]


def test_overlap_counts_words_that_carry_meaning() -> None:
    base = "alpha bravo charlie delta"
    assert shown(base, f"{base} echo") == [0]
    assert shown(base, f"{base} echo foxtrot") == [0, 1]
    assert shown(base, f"and so what is the {base} of it will have been") == [0]


def test_a_disputed_claim_is_shown_beside_its_equals() -> None:
    same = "Cranes are inspected monthly by the port"
    assert shown(same, same, same) == [0]
    assert shown(same, same, same, disputed=[0, 2]) == [0, 2]
    assert shown(same, same, same, disputed=[1]) == [0, 1]
    near = "Cranes are inspected monthly by the old port"
    assert shown(same, near, disputed=[0]) == [0, 1], "what is in dispute stands in for nothing but its very words"


def test_a_source_gets_its_share_and_what_others_leave() -> None:
    def chosen(sources: str, places: int) -> tuple[list[int], bool]:
        return choose([Answer(f"statement {n}", source, False) for n, source in enumerate(sources)], places)

    assert chosen("AAAAB", 3) == ([0, 1, 4], True)
    assert chosen("AAAAB", 4) == ([0, 1, 2, 4], True)
    assert chosen("AAAAB", 5) == ([0, 1, 2, 3, 4], False)
    assert chosen("ABCDE", 2) == ([0, 1], True)
    assert chosen("AAAA", 3) == ([0, 1, 2], True)
    assert chosen("", 3) == ([], False)


@given(
    st.lists(st.tuples(st.sampled_from(["a b c d", "a b c d e", "f 1", "f 2", "F 1."]), st.sampled_from("ABC"))),
    st.integers(1, 10),
)
def test_places_are_filled_in_rank_order_and_never_overfilled(drawn: list[tuple[str, str]], places: int) -> None:
    offered = [Answer(statement, source, False) for statement, source in drawn]
    positions, is_truncated = choose(offered, places)
    everything, _ = choose(offered, len(offered) + 1)
    assert positions == sorted(set(positions)) and set(positions) <= set(everything)
    assert len(positions) == min(places, len(everything))
    assert is_truncated == (len(everything) > places)
    left_out = [position for position in everything if position not in positions]
    for position in left_out:
        source = offered[position].source
        ahead = [other for other in positions if other < position and offered[other].source == source]
        behind = [other for other in positions if other > position and offered[other].source == source]
        assert not behind and (len(ahead) >= SAME_SOURCE_MAX or len(positions) == places)
