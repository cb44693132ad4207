"""Runs a program against a service and the model, step for step, and counts what became of each operation."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from contract.door import Door, Json, ManualClock

from . import artifacts, claims, feedback, search, sources  # noqa: F401  # their rules are part of the model
from .author import Author
from .choices import LAB, PLACES
from .intentions import needs
from .model import Model
from .names import Mismatch, Names
from .outcomes import REACHABLE, Outcome
from .programs import TOGETHER_MAX, Intention, MoveClock, Program, Step, Together

PREREQUISITES_MAX = 3
"""Attempts to make what a step is about; by then one has succeeded, unless the store is in an unlikely state."""


@dataclass
class Tally:
    """Over many programs: how many requests, what became of each operation, and which intentions led there."""

    requests: int = 0
    counts: Counter[Outcome] = field(default_factory=Counter)
    leading: defaultdict[Outcome, set[Intention]] = field(default_factory=lambda: defaultdict(set))

    def seldom(self, occurrences_min: int) -> list[Outcome]:
        """The reachable outcomes that occurred too seldom to prove anything."""
        return [outcome for outcome in REACHABLE if self.counts[outcome] < occurrences_min]

    def unforeseen(self) -> list[Outcome]:
        """The outcomes that occurred although the contract does not know them."""
        return sorted(set(self.counts) - set(REACHABLE))

    def __str__(self) -> str:
        rows = [f"{op:18} {outcome:38} {self.counts[op, outcome]:6}" for op, outcome in REACHABLE]
        return "\n".join([*rows, f"{self.requests} requests"])


class Disagreement(AssertionError):
    """The service and the model part ways; the message holds every request of the program and the parting."""


class Run:
    """One program over one store. `clock` is the service's own, when the test holds it."""

    def __init__(self, door: Door, tally: Tally, clock: ManualClock | None = None) -> None:
        self._door = door
        self._tally = tally
        self._clock = clock
        self._model = Model()
        self._names = Names()
        if clock is not None:
            self._names.see_clock(clock.now)
        self._author = Author(self._model)
        self._log: list[str] = []

    def program(self, program: Program) -> None:
        """Every step, then the whole store. Raises `Disagreement`."""
        for step in program:
            match step:
                case Step():
                    self._exchange(self._written(step), step)
                case Together():
                    self._exchange_together([self._written(each) for each in step.steps], step.copies)
                case MoveClock() if self._clock is not None:
                    self._names.see_clock(self._clock.advance(milliseconds=step.milliseconds))
                    self._log.append(f"the clock moves to {self._clock.now.isoformat()}")
        for request in self._inventory():
            self._exchange(request)
        self._verify()

    def _written(self, step: Step) -> Json:
        """The request of a step, after what must be there first."""
        request = self._author.request(step.op, step.twist, step.seed)
        for seed in range(step.seed, step.seed + PREREQUISITES_MAX):
            if request is not None:
                return request
            needed = Step(*needs(step.op, step.twist), seed)
            self._exchange(self._written(needed), needed)
            request = self._author.request(step.op, step.twist, step.seed)
        return request or self._written(Step("artifact.put", "plain", step.seed))

    @property
    def _now(self) -> datetime | None:
        return self._clock.now if self._clock is not None else None

    def _exchange(self, request: Json, step: Step | None = None) -> None:
        self._log.append(_shown(request))
        answer = self._sent(request)
        try:
            self._names.match(self._model.answer(request, self._now), answer)
        except Mismatch as parting:
            raise self._disagreement(str(parting), answer) from None
        self._done(request, self._model.outcome)
        if step is not None:
            self._tally.leading[request["op"], self._model.outcome].add((step.op, step.twist))

    def _sent(self, request: Json) -> Json:
        return self._door.send(json.dumps(self._names.translated(request), ensure_ascii=False).encode())

    def _done(self, request: Json, outcome: str) -> None:
        self._tally.requests += 1
        self._tally.counts[request["op"], outcome] += 1
        if outcome in ("created", "changed", "no-op"):
            self._author.remember(request)

    def _exchange_together(self, requests: list[Json], copies: int) -> None:
        """Send requests at once. Their answers must be those of some order, the one that the commit numbers give."""
        again = [requests[0] | {"request_id": f"{requests[0]['request_id']}/{n}"} for n in range(copies)]
        requests = (requests + again)[:TOGETHER_MAX]
        self._log.append("at once:\n  " + "\n  ".join(map(_shown, requests)))
        with ThreadPoolExecutor(len(requests)) as pool:
            answers = list(pool.map(self._sent, requests))
        pairs = sorted(zip(requests, answers, strict=True), key=_commit)
        explained = self._explained(self._model, self._names, pairs)
        if explained is None:
            raise self._disagreement("no order of these requests explains the answers", answers)
        self._model, self._names, outcomes = explained
        self._author.model = self._model
        for request, outcome in outcomes:
            self._done(request, outcome)

    def _explained(
        self, model: Model, names: Names, pairs: Sequence[tuple[Json, Json]]
    ) -> tuple[Model, Names, list[tuple[Json, str]]] | None:
        """The model after some order of the requests that gives these answers, and what became of each."""
        if not pairs:
            return model, names, []
        for chosen, (request, answer) in enumerate(pairs):
            tried, learnt = deepcopy(model), deepcopy(names)
            try:
                learnt.match(tried.answer(request, self._now), answer)
            except Mismatch:
                continue
            rest = self._explained(tried, learnt, [*pairs[:chosen], *pairs[chosen + 1 :]])
            if rest is not None:
                return rest[0], rest[1], [(request, tried.outcome), *rest[2]]
        return None

    def _inventory(self) -> Iterator[Json]:
        """Reads that show everything there is, each from where it can be seen."""
        numbers = itertools.count(1)

        def read(op: str, context: Any = None, **input: Any) -> Json:
            request = {"v": 1, "request_id": f"req_end_{next(numbers)}", "op": op, "input": input}
            return request if context is None else request | {"context": context.to_wire()}

        model, everywhere = self._model, {"horizon": "personal", "reason": "inventory"}
        for artifact in model.artifacts.values():
            yield read("artifact.get", artifact_id=artifact.id)
            yield read("artifact.history", artifact_id=artifact.id)
            yield read("projection.list", artifact.owner, artifact_id=artifact.id)
        for claim in model.claims.values():
            yield read("claim.history", claim_id=claim.id)
            yield read("relation.list", LAB, entity_type="claim", entity_id=claim.id, **everywhere)
        for source in model.sources.values():
            yield read("source.get", source.owner, source_id=source.id)
        yield read("conflict.list", LAB, include_stale=True, **everywhere)
        yield read("search", LAB, query=search.WORD, limit=100, include_historical=True, **everywhere)
        for place in PLACES:
            yield read("search", place, query=search.WORD, limit=100)
            yield read("conflict.list", place)
            yield read("feedback.list", place)
            yield read("feedback.export", place)

    def _verify(self) -> None:
        """The service's own judgement of its store, and its count of commits."""
        commits = self._door.last_commit_seq()
        if commits != self._model.commit_seq:
            raise self._disagreement(f"the service counts {commits} commits, the model {self._model.commit_seq}", None)
        report = self._door.ok("verify", context=None)
        if not report["ok"]:
            raise self._disagreement("verify finds issues", report)

    def _disagreement(self, parting: str, answer: Any) -> Disagreement:
        story = "\n".join(self._log)
        return Disagreement(f"{story}\n\n{parting}\n\nthe answer was\n{json.dumps(answer, ensure_ascii=False)}")


def _shown(request: Mapping[str, Any]) -> str:
    return json.dumps(request, ensure_ascii=False)


def _commit(pair: tuple[Json, Json]) -> tuple[bool, int, bool]:
    """The order to try first: by commit number, the one that made the commit before those that repeat it."""
    answer = pair[1]
    repeats = answer["ok"] and not answer["result"].get("created", True)
    return "commit_seq" not in answer, answer.get("commit_seq", 0), repeats
