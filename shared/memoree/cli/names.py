"""How entities and bytes are named on the line: in every form that the program itself prints.

An artifact is `ID`, `artifact:ID`, `ID@REVISION` or a citation of it, with or without a span; a claim likewise. Where
only the whole entity can be meant, a name with a revision is refused, with the name to write.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from memoree import citation
from memoree.errors import invalid, shown

EntityType = Literal["artifact", "claim"]

CITATION_PREFIXES: dict[EntityType, str] = {"artifact": citation.ARTIFACT_PREFIX, "claim": citation.CLAIM_PREFIX}
ID_PREFIXES: dict[EntityType, str] = {"artifact": "art_", "claim": "clm_"}
EVIDENCE_FORMS = "ARTIFACT@REVISION or ARTIFACT@REVISION#START-END"


class Name(NamedTuple):
    """What stands on the line; `entity_type` is `None` for an id that does not tell."""

    entity_type: EntityType | None
    entity_id: str
    revision_id: str | None


def parse_name(text: str) -> Name:
    found, rest = _typed(text)
    entity_id, at, revision_id = rest.partition("#")[0].partition("@")
    return Name(found, entity_id, revision_id if at else None)


def parse_whole(text: str, wanted: EntityType) -> str:
    """The id of an entity that is meant with all its revisions. Raises `INVALID_REQUEST`."""
    name = _of_type(text, wanted)
    _refuse_revision(text, name, name.entity_id)
    return name.entity_id


def parse_revision(text: str, wanted: EntityType, revision_id: str | None) -> tuple[str, str | None]:
    """The id of an entity, and the revision that its name or the option says. Raises `INVALID_REQUEST`, also when
    they disagree."""
    name = _of_type(text, wanted)
    if name.revision_id is None:
        return name.entity_id, revision_id
    if revision_id is not None and name.revision_id != revision_id:
        invalid(f"{shown(text)} names another revision than {shown(revision_id)}; leave one of them out")
    return name.entity_id, name.revision_id


def parse_entity(text: str) -> tuple[EntityType, str]:
    """`artifact:ID` or `claim:ID`, or an id that tells its type, as type and id. Raises `INVALID_REQUEST`."""
    name = parse_name(text)
    if name.entity_type is None or not name.entity_id.strip():
        invalid(f"{shown(text)} names no entity: write artifact:ID or claim:ID")
    _refuse_revision(text, name, f"{name.entity_type}:{name.entity_id}")
    return name.entity_type, name.entity_id


def parse_evidence(text: str) -> dict[str, Any]:
    """An artifact's revision, or bytes of it, as an evidence locator; offsets are bytes, the end exclusive. Raises
    `INVALID_REQUEST`."""
    found, rest = _typed(text)
    if found == "claim":
        invalid(
            f"evidence {shown(text)}: a claim is no evidence, bytes of an artifact are; "
            "`memoree link claim:ID supports claim:ID` relates two claims"
        )
    try:
        locator = citation.parse_locator(rest)
    except ValueError as error:
        invalid(f"evidence {shown(text)}: {error}; write {EVIDENCE_FORMS}")
    if not locator.artifact_id.strip() or not locator.revision_id.strip():
        invalid(f"evidence {shown(text)}: artifact and revision must both be named, as in ARTIFACT@REVISION")
    named = {"artifact_id": locator.artifact_id, "revision_id": locator.revision_id}
    return named if locator.span is None else {**named, **_offsets(locator.span, f"evidence {shown(text)}")}


def parse_citation(text: str) -> str:
    """The citation that is meant, with the prefix that it may be written without; what it cites is for the server to
    judge."""
    found, rest = _typed(text)
    return text if found is None else f"{CITATION_PREFIXES[found]}{rest}"


def parse_span(text: str) -> dict[str, Any]:
    """`START-END` as a span of bytes, the end exclusive. Raises `INVALID_REQUEST`."""
    try:
        return _offsets(citation.parse_span(text), f"span {shown(text)}")
    except ValueError as error:
        invalid(f"span {shown(text)}: {error}")


def _typed(text: str) -> tuple[EntityType | None, str]:
    """The type that a name tells, and the name without the prefix that is no part of the id."""
    for entity_type, prefix in CITATION_PREFIXES.items():
        for written in (prefix, f"{entity_type}:"):
            if text.startswith(written):
                return entity_type, text.removeprefix(written)
    for entity_type, prefix in ID_PREFIXES.items():
        if text.startswith(prefix):
            return entity_type, text
    return None, text


def _of_type(text: str, wanted: EntityType) -> Name:
    name = parse_name(text)
    if name.entity_type not in (None, wanted):
        other = name.entity_type
        invalid(f"{shown(text)} names the {other} {name.entity_id}; `memoree {other} get` shows it")
    return name


def _refuse_revision(text: str, name: Name, whole: str) -> None:
    if name.revision_id is not None:
        invalid(f"{shown(text)} names one revision, and all of them are meant here: write {whole}")


def _offsets(span: citation.Span, where: str) -> dict[str, Any]:
    if span.start >= span.end:
        invalid(f"{where}: START must be below END")
    return {"start_byte": span.start, "end_byte": span.end}
