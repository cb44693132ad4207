"""Programs: what hypothesis generates and shrinks. A step is an intention and a seed; the author makes a request of it
when its turn comes, from what the model holds then, so a program stays meaningful when steps are taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from .intentions import TWISTS, twists

SEED_MAX: Final = 2**16
TOGETHER_MAX: Final = 4


@dataclass(frozen=True)
class Step:
    """One request."""

    op: str
    twist: str
    seed: int


@dataclass(frozen=True)
class Together:
    """Several requests sent at once; `copies` of the first one among them."""

    steps: tuple[Step, ...]
    copies: int


@dataclass(frozen=True)
class MoveClock:
    """The service's clock moves, seldom backwards; nothing happens where it is not the test's to move."""

    milliseconds: int


Program = list[Step | Together | MoveClock]

Intention = tuple[str, str]
INTENTIONS: Final = tuple((op, twist) for op in TWISTS for twist in twists(op))
MAKERS: Final = (
    "artifact.put", "claim.assert", "claim.assert", "relation.put", "relation.put", "claim.revise", "source.ingest",
    "projection.put",
)  # fmt: skip
CLOCK_MOVES: Final = (1, 1000, 3_600_000, 7_200_000, 86_400_000, -1000, -3_600_000)
"""Sums of these reach the instants at which claims of the programs begin and end."""
NOTHING, MAKING, ASKED, RARE = range(4)
KINDS: Final = (NOTHING, *[MAKING] * 4, *[ASKED] * 15, RARE)
"""How often a step makes something for the others to be about, and how often it is a group or a move of the clock.
Programs shrink towards steps that do nothing, because hypothesis makes lists without a least length far too short."""


def _steps(intentions: Sequence[Intention]) -> st.SearchStrategy[Step]:
    return st.builds(_step, st.sampled_from(intentions), st.integers(0, SEED_MAX))


def _step(intention: Intention, seed: int) -> Step:
    return Step(*intention, seed)


def programs(length: int, intentions: Sequence[Intention]) -> st.SearchStrategy[Program]:
    """Programs of that many steps, mostly of these intentions."""
    making = _steps([(op, "plain") for op in MAKERS])
    meeting = _steps([(op, twist) for op, twist in INTENTIONS if twist != "malformed"])
    several = st.lists(meeting, min_size=1, max_size=TOGETHER_MAX).map(tuple)
    rare = st.one_of(
        st.builds(Together, several, st.integers(0, TOGETHER_MAX - 1)),
        st.builds(MoveClock, st.sampled_from(CLOCK_MOVES)),
    )
    by_kind = {NOTHING: st.none(), MAKING: making, ASKED: _steps(intentions), RARE: rare}
    some_step = st.sampled_from(KINDS).flatmap(by_kind.__getitem__)
    return st.lists(some_step, min_size=length, max_size=length).map(
        lambda steps: [step for step in steps if step is not None]
    )
