"""One program that uses every mutation, so that a store has a row of every kind in every state it can be in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Write = Callable[[str, Json], Json]
"""Runs one mutation that must succeed and returns its acknowledgement."""

LONG_TEXT = "".join(f"glaze recipe {number:04}: celadon, {number % 7} % iron oxide\n\n" for number in range(450))
"""More than lives in a row: a blob, in several chunks."""
BLOBS = 1
"""How many digests live outside the database afterwards."""


def mixed_mutations(write: Write) -> dict[str, Json]:
    """Run them all; the acknowledgements of what tests ask about, by name."""
    log = _put(write, "Kiln firing 12", "cone 6 reached at 21:40")
    recipes = _put(write, "釉薬ノート", LONG_TEXT)
    draft = _put(write, "Draft", "to be forgotten")
    revised = write(
        "artifact.revise",
        {"artifact_id": log["artifact_id"], "if_revision": log["revision_id"], "content": _text("cone 6 at 21:52")},
    )
    write("artifact.forget", {"artifact_id": draft["artifact_id"], "reason": "a draft"})

    cited = {name: recipes[name] for name in ("artifact_id", "revision_id")} | {"start_byte": 0, "end_byte": 12}
    reached, missed = _claim(write, "Firing 12 reached cone 6.", [cited]), _claim(write, "It stopped at cone 5.")
    older, newer = _claim(write, "Celadon needs cone 9."), _claim(write, "Celadon needs cone 10.")
    retracted, revising = _claim(write, "The book says cone 4."), _claim(write, "The notes say cone 5.")
    _relate(write, reached, "contradicts", missed)
    _relate(write, retracted, "contradicts", reached)
    _relate(write, revising, "contradicts", reached)
    supersession = _relate(write, newer, "supersedes", older)
    write(
        "claim.revise",
        {"claim_id": revising["claim_id"], "if_revision": revising["revision_id"], "statement": "The notes say 5.5."},
    )
    write("claim.retract", {"claim_id": retracted["claim_id"], "reason": "there is no such book"})
    write(
        "relation.put",
        {
            "source_type": "claim",
            "source_id": reached["claim_id"],
            "relation": "supports",
            "target_type": "artifact",
            "target_id": log["artifact_id"],
        },
    )
    _deliver(write)
    projections = _project(write, recipes)
    write("feedback.record", {"query": "which cone", "outcome": "useful", "retain_query": True})
    _say(write)
    return {
        "log": log,
        "revised": revised,
        "recipes": recipes,
        "draft": draft,
        "reached": reached,
        "missed": missed,
        "older": older,
        "retracted": retracted,
        "revising": revising,
        "supersession": supersession,
        **projections,
    }


def _text(data: str) -> Json:
    return {"type": "text", "data": data}


def _put(write: Write, title: str, body: str) -> Json:
    return write("artifact.put", {"kind": "note", "title": title, "content": _text(body)})


def _claim(write: Write, statement: str, evidence: list[Json] | None = None) -> Json:
    return write("claim.assert", {"claim_type": "fact", "statement": statement, "evidence": evidence or []})


def _relate(write: Write, source: Json, relation: str, target: Json) -> Json:
    return write(
        "relation.put",
        {
            "source_type": "claim",
            "source_id": source["claim_id"],
            "relation": relation,
            "target_type": "claim",
            "target_id": target["claim_id"],
        },
    )


def _deliver(write: Write) -> None:
    """A source with an item that lives, one that was withdrawn, and one that came back."""
    source = write("source.register", {"name": "studio wiki", "kind": "wiki"})["source_id"]

    def ingest(external_id: str, external_revision: str, body: str) -> None:
        item = {"source_id": source, "external_id": external_id, "external_revision": external_revision}
        write("source.ingest", item | {"kind": "page", "title": external_id, "content": _text(body)})

    ingest("page-1", "v1", "bisque at cone 04")
    ingest("page-1", "v2", "bisque at cone 06")
    ingest("page-2", "v1", "raku")
    ingest("page-3", "v1", "saggar firing")
    for external_id in ("page-2", "page-3"):
        write("source.withdraw", {"source_id": source, "external_id": external_id, "reason": "deleted there"})
    ingest("page-3", "v1", "saggar firing")
    write("source.checkpoint", {"source_id": source, "health": "degraded", "cursor": "c-120"})


def _say(write: Write) -> None:
    """An episode of two versions, and one that was forgotten."""
    said = write("artifact.put", {"kind": "episode", "title": "Standup", "content": _text("The damper sticks.")})
    by_revision = {"artifact_id": said["artifact_id"], "if_revision": said["revision_id"]}
    write("artifact.revise", {**by_revision, "content": _text("The damper stuck; Ben oiled it.")})
    rumour = write("artifact.put", {"kind": "episode", "title": "Rumour", "content": _text("The kiln is to be sold.")})
    write("artifact.forget", {"artifact_id": rumour["artifact_id"], "reason": "it was none"})


def _project(write: Write, artifact: Json) -> dict[str, Json]:
    """One projection that is found, one that was dropped."""

    def put(key: str, text: str) -> Json:
        revision = {name: artifact[name] for name in ("artifact_id", "revision_id")}
        made_by = {"generator": "summariser", "generator_version": "3", "generator_digest": "sha256:00ff"}
        spans = [{"start_byte": 0, "end_byte": 12}, {"start_byte": 20, "end_byte": 40}]
        return write(
            "projection.put",
            {**revision, **made_by, "projection_key": key, "kind": "summary", "text": text, "evidence_spans": spans},
        )

    summary, dropped = put("summary", "green iron glazes"), put("alias", "celadon list")
    write("projection.drop", {"projection_id": dropped["projection_id"], "reason": "summariser 3 was withdrawn"})
    return {"summary": summary, "dropped": dropped}
