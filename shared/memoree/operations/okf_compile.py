"""`okf.compile`: what would have to change for the claims of a project to be what its canon states (OKF contract §8.3,
§8.4). It only tells; whoever wants it sends the commands, which are ordinary ones with keys of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, Field

from memoree import clock
from memoree.database import artifacts, compiled, okf
from memoree.database import relations as relation_rows
from memoree.database.compiled import Compiled
from memoree.database.okf import CANON, NodeRow
from memoree.database.relations import Edge
from memoree.database.sources import Source
from memoree.envelope import WireModel
from memoree.limits import KIB
from memoree.okf import dates
from memoree.okf.ids import path_of
from memoree.okf.node import parse
from memoree.okf.relations import SUPERSEDED_BY, SUPERSEDES
from memoree.okf.statements import COMPILED, ON_REQUEST, Statement, statements
from memoree.operations import okf_nodes
from memoree.operations.call import Call
from memoree.operations.registry import EXTENSION, read
from memoree.operations.view import View

COMPILE = "okf.compile"
ACTOR = "okf.compile"
"""Whom the claims are attributed to; only claims of this name are ever revised, retracted or superseded."""
KEY_PREFIX = "okf.compile/"
NODES_MAX, NODES_DEFAULT = 1000, 200
"""Nodes looked at for one page."""
ORPHANS_MAX = 1000
"""Of one answer; what is left is told by the next one, once these are retracted."""
SINGLE = frozenset(("decision", "observation"))
"""Types of claims of which a node has one, so that one takes the place of another."""
DEPRECATED, GONE, UNSAID = "is deprecated", "is no longer part of canon", "no longer says so"

ActionName = Literal["assert", "revise", "retract", "supersede"]
Op = Literal["claim.assert", "claim.revise", "claim.retract", "relation.put"]


class OkfCompile(WireModel):
    """`types` are those of `Concept`, `Entity`, `Project`, `Session` and `Idea` whose descriptions are facts, too.
    `after` is the id that a page ended with."""

    types: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=len(ON_REQUEST))] = Field(
        default_factory=list
    )
    after: Annotated[str, Field(max_length=4 * KIB)] | None = None
    limit: Annotated[int, Field(ge=1, le=NODES_MAX)] = NODES_DEFAULT


class Action(BaseModel):
    """One command: `op` with `input` under `idempotency_key`. `path` is the node, `quotes` the bytes that its evidence
    cites, as text."""

    action: ActionName
    path: str | None = None
    op: Op
    input: dict[str, Any]
    idempotency_key: str
    quotes: list[str] = Field(default_factory=list)


class Compilation(BaseModel):
    """`unchanged` claims are as canon states; of `left_out` nodes it says why they state nothing that can hold."""

    actions: list[Action]
    unchanged: int
    left_out: dict[str, str]
    next_after: str | None = None


@read(COMPILE, position=EXTENSION, input=OkfCompile, result=Compilation, needs_context=True)
def compile_(view: View, call: Call[OkfCompile]) -> Compilation:
    """A page of nodes; the last one also tells of claims whose node is gone."""
    wanted = call.input
    bundle = okf_nodes.bundle_of(view, call.owner)
    told = Compilation(actions=[], unchanged=0, left_out={})
    if bundle is not None:
        also = frozenset(each.lower() for each in wanted.types)
        canon = _canon(view, bundle, COMPILED | (also & ON_REQUEST), wanted.after)
        for number, row in enumerate(canon):
            if number == wanted.limit:
                return told
            _Node(view, bundle, row, also).compile(told)
            told.next_after = row.node_id
    told.next_after = None
    for claim in compiled.of_no_node(view.db, call.owner, ACTOR, ORPHANS_MAX):
        told.actions.append(_retraction(claim, None, f"its node {GONE}"))
    return told


def _canon(view: View, bundle: Source, types: frozenset[str], after: str | None) -> Iterator[NodeRow]:
    return (
        row
        for row in okf.every(view.db, bundle.row_id)
        if row.tier == CANON and row.type.lower() in types and (after is None or row.node_id > after)
    )


class _Node:
    """One node, and the claims that were made of it before."""

    def __init__(self, view: View, bundle: Source, row: NodeRow, also: frozenset[str]) -> None:
        self._view, self._bundle, self._row = view, bundle, row
        self._artifact = artifacts.by_row(view.db, row.row_id)
        self._revision = artifacts.revision_by_row(view.db, row.revision_row)
        self._before = compiled.of_artifact(view.db, row.row_id, ACTOR)
        self._also = also
        self._path = path_of(row.node_id)
        self._window = (_stored(row.valid_from), _stored(row.invalid_at))

    def compile(self, told: Compilation) -> None:
        """Claims that still say what the file says stay, whatever revision they cite; what one says otherwise it is
        revised to, and the rest is asserted or retracted."""
        data = okf_nodes.node_bytes(self._view, self._row)
        wanted, why = self._wanted(data, told)
        live = [claim for claim in self._before if claim.is_live]
        missing = []
        for statement in wanted:
            if (same := next((claim for claim in live if self._says(claim, statement)), None)) is not None:
                live.remove(same)
                told.unchanged += 1
            elif self._was_decided(statement):
                told.unchanged += 1
            else:
                missing.append(statement)
        changed = False
        for statement in missing:
            earlier = self._earlier(live, statement)
            if earlier is not None:
                live.remove(earlier)
            told.actions.append(self._told(statement, earlier, data))
            changed = True
        told.actions += [_retraction(claim, self._path, f"{self._path} {why}") for claim in live]
        if not changed and not live:
            told.actions += self._supersessions()

    def _wanted(self, data: bytes, told: Compilation) -> tuple[Sequence[Statement], str]:
        """What it states, and why what it stated before does not hold."""
        if self._row.deprecated_on is not None:
            return (), DEPRECATED
        valid_from, valid_until = self._window
        if valid_from is not None and valid_until is not None and valid_from >= valid_until:
            told.left_out[self._path] = "it ends before it begins"
            return (), UNSAID
        return statements(parse(self._row.node_id, data), data, self._also), UNSAID

    def _says(self, claim: Compiled, statement: Statement) -> bool:
        same_window = (claim.valid_from, claim.valid_until) == self._window
        return same_window and (claim.claim_type, claim.statement) == (statement.claim_type, statement.text)

    def _was_decided(self, statement: Statement) -> bool:
        """Whether such a claim was superseded, or was retracted since the file is as it is: a person's word stands
        until the file changes."""
        return any(
            self._says(claim, statement) and (claim.status == "superseded" or claim.cited_row == self._row.revision_row)
            for claim in self._before
            if not claim.is_live
        )

    def _earlier(self, live: Sequence[Compiled], statement: Statement) -> Compiled | None:
        """The claim that a statement takes the place of. Validity belongs to a claim for good."""
        if statement.claim_type not in SINGLE:
            return None
        found = (claim for claim in live if claim.claim_type == statement.claim_type)
        return next((claim for claim in found if (claim.valid_from, claim.valid_until) == self._window), None)

    def _told(self, statement: Statement, earlier: Compiled | None, data: bytes) -> Action:
        evidence = [
            {
                "artifact_id": self._artifact.artifact_id,
                "revision_id": self._revision.revision_id,
                "start_byte": start,
                "end_byte": end,
            }
            for start, end in statement.spans
        ]
        input: dict[str, Any] = {"statement": statement.text, "evidence": evidence, "actor": ACTOR}
        if earlier is None:
            valid_from, valid_until = self._window
            window = {"valid_from": valid_from, "valid_until": valid_until}
            input |= {"claim_type": statement.claim_type}
            input |= {name: clock.wire(instant) for name, instant in window.items() if instant is not None}
        else:
            input |= {"claim_id": earlier.claim_id, "if_revision": earlier.revision_id}
        quotes = [data[start:end].decode(errors="replace") for start, end in statement.spans]
        if earlier is None:
            return _action("assert", "claim.assert", self._path, input, quotes)
        return _action("revise", "claim.revise", self._path, input, quotes)

    def _supersessions(self) -> Iterator[Action]:
        """Between claims that both stand: those of nodes that this one replaces, or is replaced by."""
        own = [claim for claim in self._before if claim.is_live and claim.claim_type in SINGLE]
        for edge in okf.outbound(self._view.db, self._row.row_id):
            if edge.kind not in (SUPERSEDES, SUPERSEDED_BY) or edge.other_id == self._row.node_id:
                continue
            other = okf.by_id(self._view.db, self._bundle.row_id, edge.other_id)
            if other is None or other.tier != CANON or self._is_told_by(other, edge.kind):
                continue
            for claim in own:
                for found in compiled.of_artifact(self._view.db, other.row_id, ACTOR):
                    if found.is_live and found.claim_type == claim.claim_type:
                        newer, older = (claim, found) if edge.kind == SUPERSEDES else (found, claim)
                        yield from self._superseding(newer, older)

    def _is_told_by(self, other: NodeRow, kind: str) -> bool:
        """Whether the other one says the same: then it is told once, where `supersedes` stands."""
        if kind == SUPERSEDES:
            return False
        return any(
            edge.kind == SUPERSEDES and edge.other_id == self._row.node_id
            for edge in okf.outbound(self._view.db, other.row_id)
        )

    def _superseding(self, newer: Compiled, older: Compiled) -> Iterator[Action]:
        edge = Edge("claim", newer.claim_id, "supersedes", "claim", older.claim_id)
        if relation_rows.of_edge(self._view.db, edge) is None:
            input = {**edge._asdict(), "metadata": {"okf_key": SUPERSEDES}}
            yield _action("supersede", "relation.put", self._path, input, [])


def _retraction(claim: Compiled, path: str | None, reason: str) -> Action:
    return _action("retract", "claim.retract", path, {"claim_id": claim.claim_id, "reason": reason}, [])


def _action(action: ActionName, op: Op, path: str | None, input: dict[str, Any], quotes: list[str]) -> Action:
    """Its key derives from all that it says, the revision and the bytes of the file among it: sent twice, it is done
    once."""
    digest = hashlib.sha256(orjson.dumps([op, input], option=orjson.OPT_SORT_KEYS)).hexdigest()
    return Action(action=action, path=path, op=op, input=input, idempotency_key=f"{KEY_PREFIX}{digest}", quotes=quotes)


def _stored(instant_ms: int | None) -> str | None:
    return None if instant_ms is None else clock.parse_timestamp(dates.iso(instant_ms))
