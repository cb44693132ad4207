"""`memory_remember`: a text, and claims that quote it. The caller copies words; the bytes they stand at are found here.

The writes of one call have keys that derive from it, so that a call that is made again after a crash completes what
the first one began, and a call that is made twice remembers once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memoree import limits
from memoree.citation import ArtifactCitation, Span
from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.mcp.arguments import Claim, Remember
from memoree.mcp.asking import Call

GENERATIONS_MAX = 64
"""How often one and the same text may be forgotten and remembered again."""
TITLE_CHARS_MAX = 120


class Quoted(NamedTuple):
    claim: Claim
    span: Span


async def remember(call: Call, wanted: Remember) -> Mapping[str, Any]:
    """Raises `INVALID_REQUEST` for a quote that is not in the text, before anything is written."""
    quoted = [Quoted(claim, locate(wanted.text, claim, number)) for number, claim in enumerate(wanted.claims)]
    title = wanted.title or title_of(wanted.text)
    artifact = await _artifact(call, wanted, title)
    named = ArtifactCitation(artifact["artifact_id"], artifact["revision_id"])
    claims = [await _claim(call, named, each, number) for number, each in enumerate(quoted)]
    return {
        "artifact_id": named.artifact_id,
        "revision_id": named.revision_id,
        "citation": str(named),
        "title": artifact["title"],
        "created": artifact["created"],
        "claims": claims,
    }


def locate(text: str, claim: Claim, number: int) -> Span:
    """The bytes of the text that a claim quotes. Raises `INVALID_REQUEST` where that is not one place."""
    starts = _occurrences(text, claim.quote)
    name, quote = f"claims.{number}.quote", shown(claim.quote)
    if not starts:
        invalid(f"{name}: {quote} does not stand in the text; copy the words exactly as they are in `text`")
    if claim.occurrence is None and len(starts) > 1:
        invalid(
            f"{name}: {quote} stands {len(starts)} times in the text; quote more words around it, "
            f"or say which one by `occurrence`, 1 to {len(starts)}"
        )
    if (claim.occurrence or 1) > len(starts):
        invalid(f"claims.{number}.occurrence: {quote} stands only {_times(len(starts))} in the text")
    start = len(text[: starts[(claim.occurrence or 1) - 1]].encode())
    return Span(start, start + len(claim.quote.encode()))


def title_of(text: str) -> str:
    """The first line that says something, without the marks of a heading."""
    lines = (line.strip().lstrip("#").strip() for line in text.splitlines())
    first = next((line for line in lines if line), text.strip())
    cut = first if len(first) <= TITLE_CHARS_MAX else f"{first[:TITLE_CHARS_MAX].rstrip()}…"
    assert len(cut.encode()) <= limits.TITLE_BYTES_MAX
    return cut


def _occurrences(text: str, quote: str) -> Sequence[int]:
    """Where it stands, also where one overlaps the next."""
    starts: list[int] = []
    position = text.find(quote)
    while position >= 0:
        starts.append(position)
        position = text.find(quote, position + 1)
    return starts


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


async def _artifact(call: Call, wanted: Remember, title: str) -> Mapping[str, Any]:
    """The artifact, and whether this call made it. What was remembered like this and then forgotten is made anew: a
    replay would answer with what nobody finds any more."""
    document: dict[str, Any] = {"kind": wanted.kind, "title": title, "content": {"type": "text", "data": wanted.text}}
    document |= {"provenance": {"via": "mcp"}} | call.actor
    generation: tuple[str, ...] = ("artifact",)
    for _ in range(GENERATIONS_MAX):
        put = await call.write("artifact.put", document, *generation)
        if await _is_standing(call, put["artifact_id"]):
            return put
        generation = ("artifact", put["artifact_id"])
    raise _too_often("artifact")


async def _is_standing(call: Call, artifact_id: str) -> bool:
    """Whether it was neither forgotten nor erased."""
    try:
        found = await call.read("artifact.get", {"artifact_id": artifact_id, "include_content": False})
    except MemoreeError as error:
        if error.code is Code.NOT_FOUND and (error.details or {}).get("kind") == "erased":
            return False
        raise
    return bool(found["status"] == "active")


async def _claim(call: Call, named: ArtifactCitation, quoted: Quoted, number: int) -> Mapping[str, Any]:
    """As `_artifact`: one that was retracted is asserted anew."""
    claim, span = quoted
    evidence = {
        "artifact_id": named.artifact_id,
        "revision_id": named.revision_id,
        "start_byte": span.start,
        "end_byte": span.end,
    }
    told = claim.model_dump(exclude={"quote", "occurrence"}, exclude_none=True)
    document = {**told, "evidence": [evidence]} | call.actor
    generation: tuple[str, ...] = (named.artifact_id, str(number))
    for _ in range(GENERATIONS_MAX):
        asserted = await call.write("claim.assert", document, "claim", *generation)
        found = await call.read("claim.get", {"claim_id": asserted["claim_id"]})
        if found["status"] != "retracted":
            return {
                "claim_id": found["claim_id"],
                "statement": found["statement"],
                "status": found["status"],
                "citation": str(named._replace(span=span)),
            }
        generation = (named.artifact_id, str(number), asserted["claim_id"])
    raise _too_often("claim")


def _too_often(what: str) -> MemoreeError:
    return MemoreeError(
        Code.INVALID_REQUEST,
        f"this {what} was remembered and taken back {GENERATIONS_MAX} times; say what is different now",
    )
