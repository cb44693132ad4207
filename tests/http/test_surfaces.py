"""Every surface that reads, asked from every scope over random rows: nothing comes back that the scope may not see.

Each row carries a mark of its own in whatever text it has. Whoever reads an answer needs no knowledge of its shape:
the marks in it must be among those of the rows that the scope may see.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from http_support import Caller, Json, envelope

from memoree.browsing.lists import LISTINGS
from memoree.operations.registry import catalogue

Tenants = Callable[[str | None], Caller]

WORKSPACES = ("wsp_1", "wsp_11")
PROJECTS = ("prj_1", "prj_11")
TASKS = (None, "tsk_1", "tsk_11")
HORIZONS = ("ambient", "workspace", "personal")
MARK = re.compile(r"mark\d{5}")
ROWS_PER_TENANT = 32
KINDS = ("artifact", "claim", "relation", "contradiction", "source", "feedback")
EXACT = frozenset({"artifact.get", "artifact.history", "citation.get", "claim.get", "claim.history"})
"""By the contract these look at no context: whoever knows an id of the tenant may read the entity (§2.3)."""
WITHOUT_ROWS = frozenset({"capabilities", "instructions", "schema", "doctor", "verify", "context.resolve"})
NO_READ = frozenset({"backup.create"})


@dataclass(frozen=True)
class Scope:
    workspace_id: str
    project_id: str
    task_id: str | None

    def wire(self) -> Json:
        named = {"workspace_id": self.workspace_id, "project_id": self.project_id, "task_id": self.task_id}
        return {name: value for name, value in named.items() if value is not None}

    def sees(self, owner: Scope, horizon: str) -> bool:
        """The visibility predicate of the contract, §2.5."""
        if horizon == "personal":
            return True
        if horizon == "workspace":
            return owner.workspace_id == self.workspace_id
        same_place = (owner.workspace_id, owner.project_id) == (self.workspace_id, self.project_id)
        return same_place and (None in (owner.task_id, self.task_id) or owner.task_id == self.task_id)


SCOPES = tuple(itertools.starmap(Scope, itertools.product(WORKSPACES, PROJECTS, TASKS)))


@dataclass
class World:
    """The rows of one tenant: marks and their owners, and the ids that exact reads may ask for."""

    caller: Caller
    numbers: Iterator[int]
    owners: dict[str, Scope] = field(default_factory=dict)
    artifacts: list[Json] = field(default_factory=list)
    claims: list[Json] = field(default_factory=list)
    ids: dict[str, list[str]] = field(default_factory=lambda: {"source_id": [], "feedback_id": []})

    def mark(self, owner: Scope) -> str:
        mark = f"mark{next(self.numbers):05}"
        self.owners[mark] = owner
        return mark

    def fill(self, chance: random.Random) -> None:
        """Random rows in random scopes; relations join what one scope owns, so that their owner is theirs."""
        mine: dict[Scope, dict[str, list[Json]]] = {scope: {"artifact": [], "claim": []} for scope in SCOPES}
        for _ in range(ROWS_PER_TENANT):
            owner = chance.choice(SCOPES)
            self._add(chance.choice(KINDS), owner, mine)
        self.artifacts = [one for each in mine.values() for one in each["artifact"]]
        self.claims = [one for each in mine.values() for one in each["claim"]]

    def _add(self, kind: str, owner: Scope, mine: dict[Scope, dict[str, list[Json]]]) -> None:
        mark, own = self.mark(owner), mine[owner]
        if kind == "source":
            source = self.ask("source.register", {"name": mark, "kind": "wiki"}, owner)
            self.ids["source_id"].append(source["source_id"])
            item = {"source_id": source["source_id"], "external_id": "1", "external_revision": "1", "kind": "page"}
            delivered = self.ask("source.ingest", item | {"title": mark, "content": _text(mark)}, owner)
            own["artifact"].append(delivered["artifact"])
        elif kind == "feedback":
            told = {"query": f"ember {mark}", "outcome": "miss", "retain_query": True, "note": mark}
            self.ids["feedback_id"].append(self.ask("feedback.record", told, owner)["feedback_id"])
        elif kind in ("relation", "contradiction"):
            source, target = self._claim(owner), self._claim(owner)
            own["claim"] += [source, target]
            relation = "contradicts" if kind == "contradiction" else "references"
            edge = {"source_type": "claim", "source_id": source["claim_id"], "target_type": "claim"}
            edge |= {"target_id": target["claim_id"], "relation": relation, "metadata": {"note": mark}}
            self.ask("relation.put", edge, owner)
        elif kind == "artifact":
            made = self.ask("artifact.put", {"kind": "note", "title": mark, "content": _text(mark)}, owner)
            own["artifact"].append(made)
            spans = {"evidence_spans": [{"start_byte": 0, "end_byte": 5}], "text": f"ember {mark}", "kind": "summary"}
            by = {"generator": "g", "generator_version": "1", "generator_digest": "d", "projection_key": "k"}
            of = {"artifact_id": made["artifact_id"], "revision_id": made["revision_id"]}
            self.ask("projection.put", spans | by | of, owner)
        else:
            own["claim"].append(self._claim(owner))

    def _claim(self, owner: Scope) -> Json:
        return self.ask("claim.assert", {"claim_type": "fact", "statement": f"ember {self.mark(owner)}"}, owner)

    def ask(self, op: str, input: Json, owner: Scope) -> Json:
        answer = self.caller.post(envelope(op, input, key=uuid.uuid4().hex, context=owner.wire())).json()
        assert answer["ok"], answer
        result: Json = answer["result"]
        return result

    def inputs(self, op: str) -> Iterator[Json]:
        """Inputs of a read that reach for everything it can reach."""
        if op in ("artifact.get", "artifact.history", "projection.list"):
            yield from ({"artifact_id": each["artifact_id"]} for each in self.artifacts)
        elif op in ("claim.get", "claim.history"):
            yield from ({"claim_id": each["claim_id"]} for each in self.claims)
        elif op == "citation.get":
            for each in self.artifacts:
                yield {"citation": f"memoree://artifact/{each['artifact_id']}@{each['revision_id']}#0-15"}
        elif op == "relation.list":
            yield from ({"entity_type": "claim", "entity_id": each["claim_id"]} for each in self.claims)
        elif op in ("source.get", "feedback.get"):
            name = f"{op.partition('.')[0]}_id"
            yield from ({name: each} for each in self.ids[name])
        elif "query" in catalogue()[op].input.model_fields:
            yield {"query": "ember"}
            nearby = {"max_candidate_claims": 5, "max_candidate_artifact_refs": 5} if op == "memory.recall" else {}
            yield {"query": "ember quagga okapi"} | nearby
        else:
            yield {}

    def allowed(self, scope: Scope, horizon: str) -> set[str]:
        return {mark for mark, owner in self.owners.items() if scope.sees(owner, horizon)}


def _text(mark: str) -> Json:
    return {"type": "text", "data": f"ember {mark}"}


@pytest.fixture
def worlds(open_tenants: Callable[..., Tenants], request: pytest.FixtureRequest) -> list[World]:
    """Two tenants with rows in the same scopes, and marks that tell all of them apart."""
    call_as, numbers, chance = open_tenants(rate_per_second=1e6, rate_burst=10**6), itertools.count(), request.param
    made = [World(call_as(token), numbers) for token in ("tok-a", "tok-b")]
    for world in made:
        world.fill(random.Random(chance))
    return made


def reads(world: World, scope: Scope, horizon: str) -> Iterator[tuple[str, Json]]:
    """Every read operation, with and without which the horizon makes a difference."""
    for name, operation in catalogue().items():
        if operation.mutating or name in NO_READ or (horizon != "ambient" and not operation.horizon):
            continue
        if name in EXACT and scope != SCOPES[0]:
            continue
        for input in world.inputs(name):
            wide = {"horizon": horizon, "reason": "all"} if operation.horizon and horizon != "ambient" else {}
            yield name, envelope(name, input | wide, context=scope.wire())


@pytest.mark.proves("fault-24")
@pytest.mark.parametrize("worlds", [24], indirect=True)
def test_no_read_operation_shows_what_its_scope_may_not_see(worlds: list[World]) -> None:
    seen_by: dict[str, set[str]] = {}
    for world, scope, horizon in itertools.product(worlds, SCOPES, HORIZONS):
        asked = list(reads(world, scope, horizon))
        body = b"".join(json.dumps(request).encode() + b"\n" for _, request in asked)
        answers = world.caller.http.post("/v1/bulk", content=body, headers={"Content-Type": "application/x-ndjson"})
        for (name, _), line in zip(asked, answers.text.splitlines(), strict=True):
            marks = set(MARK.findall(line))
            within = "personal" if name in EXACT else horizon
            assert marks <= world.allowed(scope, within), f"{name} from {scope}, {horizon}"
            seen_by.setdefault(name, set()).update(marks)
    blind = {name for name, marks in seen_by.items() if not marks} - WITHOUT_ROWS
    assert not blind, f"these reads showed nothing at all, which proves nothing: {blind}"


@pytest.mark.proves("fault-24")
@pytest.mark.parametrize("worlds", [24], indirect=True)
def test_a_list_shows_exactly_the_rows_its_scope_may_see(worlds: list[World]) -> None:
    for world, scope, horizon in itertools.product(worlds, SCOPES, HORIZONS):
        seen = {
            listing.name: set(MARK.findall(_whole(world.caller, listing.name, scope, horizon))) for listing in LISTINGS
        }
        rows = world.allowed(scope, horizon)
        listed = _marks_of(world.artifacts) | _marks_of(world.claims)
        assert set().union(*seen.values()) <= rows
        assert seen["artifacts"] >= rows & _marks_of(world.artifacts)
        assert seen["claims"] >= rows & _marks_of(world.claims)
        assert listed


def _marks_of(records: list[Json]) -> set[str]:
    return set(MARK.findall(json.dumps(records)))


def _whole(caller: Caller, path: str, scope: Scope, horizon: str) -> str:
    """All pages of a list, as they came."""
    asked: dict[str, Any] = scope.wire() | {"horizon": horizon, "reason": "all", "limit": 7}
    pages = []
    while True:
        response = caller.http.get(f"/v1/{path}", params=asked)
        assert response.status_code == 200, response.text
        pages.append(response.text)
        if (cursor := response.json()["next_cursor"]) is None:
            return "".join(pages)
        asked["cursor"] = cursor
