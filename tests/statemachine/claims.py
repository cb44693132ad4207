"""Claims, the edges between entities, and conflict cases (machine protocol §4.11 to §4.18, §6)."""

from __future__ import annotations

from contract.door import Json

from .artifacts import existing as existing_artifact
from .artifacts import find_revision as find_artifact_revision
from .artifacts import revision_conflict
from .entities import TERMINAL, Case, Claim, ClaimRevision, Context, Ordinal, Relation, present
from .model import MAYBE_TEXT, TEXT, Call, Commit, Done, Model, Refused, instant, invalid, not_found, operation, wire


def existing(call: Call, claim_id: str) -> Claim:
    return call.model.claims.get(claim_id) or not_found()


def status(model: Model, claim: Claim) -> str:
    """`conflicted` is derived: some open case names this claim and its current revision (§6.1)."""
    if claim.ended is not None:
        return claim.ended
    disputed = any(
        case.state == "open" and claim.head in (case.source_revision, case.target_revision) for case in model.cases
    )
    return "conflicted" if disputed else "active"


def record(model: Model, claim: Claim, revision: ClaimRevision) -> Json:
    return {
        "claim_id": claim.id,
        "revision_id": revision.id,
        "revision_number": revision.number,
        "claim_type": claim.claim_type,
        "status": status(model, claim),
        "statement": revision.statement,
        "evidence": revision.evidence,
        "context": claim.owner.to_wire(),
        "created_at": claim.created_at,
        "revision_created_at": revision.created_at,
        "revision_commit_seq": revision.commit_seq,
    } | present(
        {
            "confidence": revision.confidence,
            "actor": revision.actor,
            "valid_from": claim.valid_from,
            "valid_until": claim.valid_until,
            "retraction_reason": claim.retraction_reason,
        }
    )


def _check_offsets(evidence: list[Json]) -> None:
    for locator in evidence:
        start, end = locator.get("start_byte"), locator.get("end_byte")
        if (start is None) != (end is None) or (start is not None and end is not None and start >= end):
            invalid()


def _cited(call: Call) -> list[Json]:
    """Cited revisions must exist and hold the spans, in whatever scope they are."""
    evidence: list[Json] = call.input.get("evidence", [])
    for locator in evidence:
        revision = find_artifact_revision(call, locator["artifact_id"], locator["revision_id"])
        if (locator.get("end_byte") or 0) > len(revision.body):
            invalid()
    return evidence


def _add_revision(call: Call, claim: Claim, commit: Commit, evidence: list[Json]) -> ClaimRevision:
    revision = ClaimRevision(
        call.model.named("crev"),
        len(claim.revisions) + 1,
        call.input["statement"],
        call.input.get("confidence"),
        evidence,
        call.input.get("actor"),
        commit.at,
        commit.seq,
    )
    claim.revisions.append(revision)
    return revision


@operation("claim.assert")
def assert_claim(call: Call) -> Done:
    window = {name: instant(call.input[name]) for name in ("valid_from", "valid_until") if name in call.input}
    if len(window) == 2 and window["valid_from"] >= window["valid_until"]:
        invalid()
    _check_offsets(call.input.get("evidence", []))
    call.replay_or_go_on()
    evidence = _cited(call)
    commit = call.commit()
    bounds = {name: wire(moment) for name, moment in window.items()}
    claim = Claim(
        call.model.named("clm"),
        call.input["claim_type"],
        call.owner,
        commit.at,
        bounds.get("valid_from"),
        bounds.get("valid_until"),
    )
    call.model.claims[claim.id] = claim
    revision = _add_revision(call, claim, commit, evidence)
    return Done(record(call.model, claim, revision), commit.seq)


@operation("claim.revise")
def revise(call: Call) -> Done:
    model = call.model
    _check_offsets(call.input.get("evidence", []))
    claim = existing(call, call.input["claim_id"])
    call.must_own(claim.owner)
    call.replay_or_go_on()
    evidence = _cited(call)
    if call.input["if_revision"] != claim.head.id:
        raise revision_conflict("claim", claim.id, claim.head.id, call.input["if_revision"])
    if claim.ended in TERMINAL:
        invalid()
    commit = call.commit()
    revision = _add_revision(call, claim, commit, evidence)
    close_cases(model, claim, "stale", commit)
    for relation in _contradictions(model, claim):
        open_case_if_live(model, relation, commit)
    return Done(record(model, claim, revision), commit.seq)


def _contradictions(model: Model, claim: Claim) -> list[Relation]:
    """The contract does not say in which order one commit opens several cases: that of the cases they replace."""
    latest = {case.relation.id: case.sequence for case in model.cases}
    involved = [
        relation
        for relation in model.relations
        if relation.type == "contradicts" and ("claim", claim.id) in (relation.source, relation.target)
    ]
    return sorted(involved, key=lambda relation: latest[relation.id])


@operation("claim.retract")
def retract(call: Call) -> Done:
    claim = existing(call, call.input["claim_id"])
    call.must_own(claim.owner)
    call.replay_or_go_on()
    if claim.ended == "retracted":
        invalid()
    commit = call.commit()
    claim.ended, claim.retraction_reason = "retracted", call.input["reason"]
    close_cases(call.model, claim, "resolved", commit)
    return Done(record(call.model, claim, claim.head), commit.seq)


@operation("claim.get")
def get(call: Call) -> Json:
    claim = existing(call, call.input["claim_id"])
    wanted = call.input.get("revision_id", claim.head.id)
    revision = next((each for each in claim.revisions if each.id == wanted), None) or not_found()
    return record(call.model, claim, revision)


@operation("claim.history")
def history(call: Call) -> Json:
    claim = existing(call, call.input["claim_id"])
    newest_first = claim.revisions[::-1]
    revisions, closing = call.page(newest_first, "before_revision_number", lambda revision: revision.number, limit=50)
    return {"revisions": [record(call.model, claim, revision) for revision in revisions]} | closing


def close_cases(model: Model, claim: Claim, state: str, commit: Commit) -> None:
    """Every open case that involves the claim moves to a final state (§6.3)."""
    for case in model.cases:
        if case.state == "open" and claim.id in case.claims:
            case.state, case.updated_at = state, commit.at


def open_case_if_live(model: Model, relation: Relation, commit: Commit) -> None:
    """A case over the two current revisions, unless an end has become terminal (§6.3, 1 and 10)."""
    source, target = model.claims[relation.source[1]], model.claims[relation.target[1]]
    if source.is_live and target.is_live:
        case = Case(
            model.named("ccase"),
            Ordinal(len(model.cases) + 1),
            relation,
            source.head,
            target.head,
            commit.seq,
            commit.at,
            commit.at,
        )
        model.cases.append(case)


@operation("relation.put")
def relate(call: Call) -> Done:
    input, model = call.input, call.model
    source, target = (input["source_type"], input["source_id"]), (input["target_type"], input["target_id"])
    metadata = input.get("metadata", {})
    if source == target:
        invalid()
    call.must_own(_owner_of(call, *source))
    call.must_own(_owner_of(call, *target))
    call.replay_or_go_on()
    same = next((each for each in model.relations if each.edge == (source, input["relation"], target)), None)
    if same is not None:
        if same.metadata != metadata:
            invalid()
        return Done(same.record(), same.commit_seq, created=False)
    if input["relation"] in ("contradicts", "supersedes"):
        _check_both_live_claims(model, source, target)
    commit = call.commit()
    relation = Relation(
        model.named("rel"), source, input["relation"], target, metadata, call.owner, commit.at, commit.seq
    )
    model.relations.append(relation)
    if relation.type == "contradicts":
        open_case_if_live(model, relation, commit)
    if relation.type == "supersedes":
        superseded = model.claims[target[1]]
        superseded.ended = "superseded"
        close_cases(model, superseded, "resolved", commit)
    return Done(relation.record(), commit.seq)


def _check_both_live_claims(model: Model, *ends: tuple[str, str]) -> None:
    for entity_type, entity_id in ends:
        if entity_type != "claim" or not model.claims[entity_id].is_live:
            invalid()


def _owner_of(call: Call, entity_type: str, entity_id: str) -> Context:
    return (existing_artifact if entity_type == "artifact" else existing)(call, entity_id).owner


@operation("relation.list")
def list_relations(call: Call) -> Json:
    input = call.input
    anchor, horizon = (input["entity_type"], input["entity_id"]), input.get("horizon", "ambient")
    direction = input.get("direction", "both")
    pinned = anchor[0] == "artifact" and anchor[1] in call.context.pinned()
    if not call.context.sees(_owner_of(call, *anchor), horizon) and not pinned:
        raise Refused("SCOPE_VIOLATION")
    found = [
        relation
        for relation in reversed(call.model.relations)
        if call.context.sees(relation.owner, horizon)
        and (
            (relation.source == anchor and direction != "incoming")
            or (relation.target == anchor and direction != "outgoing")
        )
        and input.get("relation", relation.type) == relation.type
    ]
    shown, closing = call.page(found, "before_commit_seq", lambda relation: relation.commit_seq)
    result = {
        "entity_type": anchor[0],
        "entity_id": anchor[1],
        "direction": direction,
        "horizon": horizon,
        "relations": [relation.record() for relation in shown],
    } | closing
    return result | present({"relation": input.get("relation")}) | _hint(shown, horizon)


@operation("conflict.list")
def list_conflicts(call: Call) -> Json:
    horizon, include_stale = call.input.get("horizon", "ambient"), call.input.get("include_stale", False)
    listed = ("open", "stale") if include_stale else ("open",)
    found = [
        case
        for case in reversed(call.model.cases)
        if case.state in listed and call.context.sees(case.relation.owner, horizon)
    ]
    shown, closing = call.page(found, "before_case_sequence", lambda case: case.sequence)
    result = {
        "horizon": horizon,
        "include_stale": include_stale,
        "conflicts": [_case_record(call.model, case) for case in shown],
    } | closing
    return result | _hint(shown, horizon)


def _case_record(model: Model, case: Case) -> Json:
    relation = case.relation
    return {
        "case_id": case.id,
        "relation_id": relation.id,
        "state": case.state,
        "source": _end(model, relation.source[1], case.source_revision),
        "target": _end(model, relation.target[1], case.target_revision),
        "metadata": relation.metadata,
        "context": relation.owner.to_wire(),
        "opened_at": case.opened_at,
        "updated_at": case.updated_at,
        "opened_commit_seq": case.opened_commit_seq,
        "case_sequence": case.sequence,
        "state_reason": MAYBE_TEXT,
    }


def _end(model: Model, claim_id: str, frozen: ClaimRevision) -> Json:
    claim = model.claims[claim_id]
    return {
        "claim_id": claim.id,
        "frozen": record(model, claim, frozen),
        "current": record(model, claim, claim.head),
        "frozen_is_current": frozen is claim.head,
    }


def _hint(shown: list[Relation] | list[Case], horizon: str) -> Json:
    return {"broaden_hint": TEXT} if not shown and horizon != "personal" else {}
