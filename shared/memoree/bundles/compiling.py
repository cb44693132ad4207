"""Bringing the claims of a project to what its canon states: what `okf.compile` tells, and the commands it tells of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memoree.client.batches import BATCH_REQUESTS_MAX, Command, Door
from memoree.errors import MemoreeError

Json = Mapping[str, Any]

PASSES_MAX = 8
"""Supersessions join claims that an earlier pass asserted, and those of missing nodes are told some at a time."""


@dataclass(slots=True)
class Compiled:
    """`actions` are those that were told first, or done; `refused` says by path or claim what the store refused."""

    actions: list[Json] = field(default_factory=list)
    unchanged: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """By kind of action, those that were not refused."""
        return dict(sorted(Counter(str(each["action"]) for each in self.actions).items()))


def preview(door: Door, types: Sequence[str] = ()) -> Compiled:
    """What would be done. Changes nothing."""
    found = Compiled()
    for page in _pages(door, types):
        found.actions += page.get("actions", [])
        found.unchanged += page.get("unchanged", 0)
        found.left_out |= page.get("left_out", {})
    return found


def apply(door: Door, types: Sequence[str] = ()) -> Compiled:
    """Do it, until nothing is left to do. A run that was interrupted is completed by the next one: each command has the
    key that it was told with."""
    done = Compiled()
    for _ in range(PASSES_MAX):
        told = preview(door, types)
        done.unchanged, done.left_out = told.unchanged, told.left_out
        waiting = [each for each in told.actions if each["idempotency_key"] not in done.refused]
        if not waiting:
            break
        for start in range(0, len(waiting), BATCH_REQUESTS_MAX):
            batch = waiting[start : start + BATCH_REQUESTS_MAX]
            outcomes = door.tell([Command(each["op"], each["input"], each["idempotency_key"]) for each in batch])
            for action, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, MemoreeError):
                    done.refused[str(action["idempotency_key"])] = f"{action.get('path') or 'claim'}: {outcome.message}"
                else:
                    done.actions.append(action)
    return done


def _pages(door: Door, types: Sequence[str]) -> Iterator[Json]:
    after: dict[str, str] = {}
    while True:
        page = door.ask("okf.compile", {"types": list(types), **after})
        yield page
        if (next_after := page.get("next_after")) is None:
            return
        after = {"after": next_after}
