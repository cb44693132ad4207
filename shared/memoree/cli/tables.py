"""Results for people, on a terminal only: what something says, how it is, and the ids to go on with.

The envelope has everything (`--json`); here stands what a person decides by.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from memoree.citation import ArtifactCitation, Span
from memoree.cli import inbox_tables, packs, terminal
from memoree.cli.terminal import document, facts, fields, heading, indented, listed, note, one_piece

Record = Mapping[str, Any]
Parts = Iterator[RenderableType]

HISTORY_COLUMNS = ("revision_number", "revision_id", "revision_created_at", "title", "statement")
FINGERPRINT_DIGITS = 12
"""Enough to tell the queries of one person apart."""


def show(op: str, result: Record) -> None:
    """Print the result of an operation."""
    terminal.console().print(RENDERERS.get(op, fields)(result), crop=False)


def show_fields(result: Record) -> None:
    terminal.console().print(fields(result))


# --- artifacts and claims ---------------------------------------------------------------------------------------


def artifact(record: Record) -> RenderableType:
    """The record, and the content where there is any."""
    content = record.get("content")
    shown = () if content is None else (Text(""), _content(content))
    return Group(*_artifact(record), *shown)


def _artifact(record: Record) -> Parts:
    yield heading(record["title"], record["status"])
    yield one_piece(f"{record['artifact_id']}@{record['revision_id']}")
    yield facts(
        record["kind"],
        record["media_type"],
        f"{record['size_bytes']} bytes",
        *_revision(record),
        _committed(record),
    )
    if "forgotten_reason" in record:
        yield indented(f"forgotten: {record['forgotten_reason']}")
    if "materialized_path" in record:
        yield one_piece(f"written to {record['materialized_path']}")
    if "retention_notice" in record:
        yield note(record["retention_notice"])


def claim(record: Record) -> RenderableType:
    return Group(*_claim(record))


def _claim(record: Record) -> Parts:
    yield heading(record["statement"], record["status"])
    yield one_piece(f"{record['claim_id']}@{record['revision_id']}")
    yield facts(
        record["claim_type"],
        f"confidence {record['confidence']}" if "confidence" in record else None,
        f"valid from {record['valid_from']}" if "valid_from" in record else None,
        f"valid until {record['valid_until']}" if "valid_until" in record else None,
        *_revision(record),
        _committed(record),
    )
    if record["status"] == "conflicted":
        yield note(
            f"in conflict: `memoree relation list claim:{record['claim_id']} --relation contradicts` shows with what"
        )
    if "retraction_reason" in record:
        yield indented(f"retracted: {record['retraction_reason']}")
    yield from (one_piece(_cited(locator)) for locator in record["evidence"])


def _revision(record: Record) -> Iterator[str]:
    yield f"revision {record['revision_number']} of {record['revision_created_at']}"
    if "actor" in record:
        yield f"by {record['actor']}"


def _committed(record: Record) -> str | None:
    """Of an acknowledgement: the commit it belongs to, and a word when that is not the first of its kind."""
    if "created" not in record:
        return None
    return f"commit {record['commit_seq']}" + ("" if record["created"] else ", created: no")


def _cited(locator: Record) -> str:
    span = Span(locator["start_byte"], locator["end_byte"]) if "start_byte" in locator else None
    return str(ArtifactCitation(locator["artifact_id"], locator["revision_id"], span))


def history(result: Record) -> RenderableType:
    revisions = result["revisions"]
    columns = [name for name in HISTORY_COLUMNS if any(name in revision for revision in revisions)]
    rows = [[revision.get(name, "") for name in columns] for revision in revisions]
    return listed([terminal.table(columns, rows)], result, "next_before_revision_number")


def hits(result: Record) -> RenderableType:
    """Three lines each: the citation alone is wider than many terminals, and stays in one piece to be copied."""
    found = (part for hit in result["hits"] for part in _hit(hit))
    return listed(found, result, "refine_hint", "broaden_hint")


def _hit(hit: Record) -> Parts:
    """A claim is headed by what it says: its title only repeats its type."""
    excerpt = hit["excerpt"].rstrip()
    if hit["entity_type"] == "claim":
        yield heading(excerpt, f"{hit['title']}, {hit['status']}")
    else:
        yield heading(hit["title"], hit["status"])
        yield indented(excerpt)
    yield one_piece(hit["citation"])


def recalled(result: Record) -> RenderableType:
    """The claims with what they rest on, the artifacts, and below them what is no answer."""
    found = [part for claim in result["claims"] for part in _recalled_claim(claim)]
    found += [part for ref in result["artifact_refs"] for part in _reference(ref, ref["status"])]
    for claim in result["candidate_claims"]:
        found += [heading(claim["statement"], f"{claim['claim_type']}, no answer"), one_piece(claim["citation"])]
    found += [part for ref in result["candidate_artifact_refs"] for part in _reference(ref, "no answer")]
    return listed(found, result, "claims_refine_hint", "artifact_refs_refine_hint", "candidates_hint")


def _recalled_claim(claim: Record) -> Parts:
    yield heading(claim["statement"], f"{claim['claim_type']}, {claim['status']}")
    yield one_piece(claim["citation"])
    yield from (one_piece(evidence["citation"]) for evidence in claim["evidence"])


def _reference(ref: Record, state: str) -> Parts:
    yield heading(ref["title"], state)
    yield indented(ref["excerpt"].rstrip())
    yield one_piece(ref.get("excerpt_citation", ref["citation"]))


def retrieved(result: Record) -> RenderableType:
    """As recall shows it; below, the words that claims nearby cite, and what to do without an answer."""
    found = [part for claim in result["claims"] for part in _recalled_claim(claim)]
    found += [part for ref in result["artifact_refs"] for part in _reference(ref, "artifact")]
    for evidence in result.get("recovery", {}).get("evidence", ()):
        found += [heading(evidence["title"], "no answer"), indented(evidence["content"].rstrip())]
        found += [one_piece(evidence["citation"])]
    advice = [note(result["next_action"]["detail"])] if "next_action" in result else []
    profile = [fields(result["profile"])] if "profile" in result else []
    return Group(listed(found, result), *advice, *profile)


def leads(result: Record) -> RenderableType:
    found = (part for lead in result["leads"] for part in _lead(lead))
    more = [note(f"{result['available_count']} or more are near")] if result["truncated"] else []
    return Group(listed(found, result), *more)


def _lead(lead: Record) -> Parts:
    yield heading(lead["title"], "" if lead["evidence_locator_set_complete"] else "more sources")
    yield from (one_piece(source["citation"]) for source in lead["sources"])


def built_context(result: Record) -> RenderableType:
    """The Markdown as it goes into a prompt, and what it leaves out."""
    left_out = f"{result['omitted_count']} more did not fit into {result['max_bytes']} bytes"
    notes = [note(left_out)] if result["omitted_count"] else []
    return listed([_content(result["rendered_markdown"]), *notes], result, "refine_hint", "broaden_hint")


def cited(result: Record) -> RenderableType:
    rest = f"cut: {result['remaining_bytes']} more bytes were asked for" if result["truncated"] else None
    shown = [one_piece(result["citation"], indent=0), facts(result["media_type"], f"{result['byte_count']} bytes")]
    return Group(*shown, Text(""), _content(result["content"]), *([note(rest)] if rest else []))


# --- relations and conflicts ------------------------------------------------------------------------------------


def relation(record: Record) -> RenderableType:
    """From the source, by the relation, to the target."""
    source, target = (f"{record[f'{end}_type']}:{record[f'{end}_id']}" for end in ("source", "target"))
    return Group(
        one_piece(source, indent=0),
        heading(f"  {record['relation']}"),
        one_piece(target, indent=0),
        facts(record["relation_id"], f"put {record['created_at']}", _committed(record)),
    )


def relations(result: Record) -> RenderableType:
    anchor = (result["entity_type"], result["entity_id"])
    found = (part for record in result["relations"] for part in _edge(record, anchor))
    return listed(found, result, "next_before_commit_seq", "broaden_hint")


def _edge(record: Record, anchor: tuple[str, str]) -> Parts:
    """An edge as the anchor sees it: an arrow to it or from it, and the other end."""
    outgoing = (record["source_type"], record["source_id"]) == anchor
    arrow, other = ("→", "target") if outgoing else ("←", "source")
    yield one_piece(f"{arrow} {record['relation']}  {record[f'{other}_type']}:{record[f'{other}_id']}", indent=0)
    yield facts(record["relation_id"], f"put {record['created_at']}", f"commit {record['relation_commit_seq']}")


def conflicts(result: Record) -> RenderableType:
    found = (part for case in result["conflicts"] for part in _case(case))
    return listed(found, result, "next_before_case_sequence", "broaden_hint")


def _case(case: Record) -> Parts:
    yield heading(f"case {case['case_sequence']}", case["state"])
    for end in (case["source"], case["target"]):
        frozen, current = end["frozen"], end["current"]
        yield indented(f"{frozen['statement']}  {frozen['status']}")
        yield one_piece(f"{end['claim_id']}@{frozen['revision_id']}")
        if not end["frozen_is_current"]:
            yield indented(f"now: {current['statement']}")
    yield facts(case["case_id"], f"opened {case['opened_at']}", case.get("state_reason"))


# --- sources and projections ------------------------------------------------------------------------------------


def source(record: Record) -> RenderableType:
    return Group(*_source(record, _committed(record)))


def _source(record: Record, committed: str | None) -> Parts:
    yield heading(record["name"], record["health"])
    yield one_piece(record["source_id"])
    seen = f"last observed {record['last_observed_at']}" if "last_observed_at" in record else None
    cursor = f"cursor {record['cursor']}" if "cursor" in record else None
    yield facts(record["kind"], record.get("locator"), seen, cursor, committed)
    if "health_message" in record:
        yield indented(record["health_message"])


def delivery(result: Record) -> RenderableType:
    """`created` says whether an artifact was made, not whether anything was stored; its revision number tells that."""
    return _item(result, f"commit {result['commit_seq']}")


def withdrawal(result: Record) -> RenderableType:
    return _item(result, _committed(result))


def _item(result: Record, committed: str | None) -> RenderableType:
    """What became of an item, with its artifact and its source."""
    delivered = result["item"]
    state = heading(f"{delivered['external_id']} at {delivered['external_revision']}", delivered["state"])
    return Group(state, facts(committed), *_artifact(result["artifact"]), *_source(result["source"], None))


def projection(record: Record) -> RenderableType:
    return Group(*_projection(record))


def projections(result: Record) -> RenderableType:
    return listed((part for record in result["projections"] for part in _projection(record)), result)


def _projection(record: Record) -> Parts:
    yield heading(record["text"], record["status"])
    yield one_piece(record["projection_id"])
    spans = " ".join(f"{span['start_byte']}-{span['end_byte']}" for span in record["evidence_spans"])
    made_by = f"{record['generator']} {record['generator_version']}"
    yield facts(record["kind"], record["projection_key"], f"bytes {spans}", made_by, _committed(record))
    if "dropped_reason" in record:
        yield indented(f"dropped: {record['dropped_reason']}")


# --- feedback ---------------------------------------------------------------------------------------------------


def feedback(record: Record) -> RenderableType:
    return Group(*_feedback(record))


def feedback_page(result: Record) -> RenderableType:
    found = (part for record in result["feedback"] for part in _feedback(record))
    return listed(found, result, "next_before_commit_seq")


def feedback_export(result: Record) -> RenderableType:
    found = (part for case in result["cases"] for part in _judged(case, case["query"]))
    return listed(found, result, "next_before_commit_seq")


def _feedback(record: Record) -> Parts:
    digits = record["query_fingerprint"][:FINGERPRINT_DIGITS]
    return _judged(record, record.get("retained_query", f"query {digits}…"))


def _judged(record: Record, query: str) -> Parts:
    yield heading(query, record["outcome"])
    actor = f"by {record['actor']}" if "actor" in record else None
    yield facts(record["feedback_id"], f"recorded {record['created_at']}", actor, _committed(record))
    if "note" in record:
        yield indented(record["note"])
    yield from (one_piece(citation) for citation in record["citations"])


# --- ingestion --------------------------------------------------------------------------------------------------


def dead_letters(letters: Iterable[Record]) -> RenderableType:
    return listed((part for letter in letters for part in _dead_letter(letter)), {})


def _dead_letter(letter: Record) -> Parts:
    """What the message is about, as far as it can be read, and why it cannot be applied."""
    about = [letter[name] for name in ("type", "external_id", "external_revision") if name in letter]
    yield heading(" ".join(about) or "a message that is none", letter["code"])
    yield one_piece(letter["letter_id"])
    yield facts(
        f"source {letter['source']}" if "source" in letter else None,
        f"tenant {letter['tenant']}" if "tenant" in letter else None,
        f"tries: {letter['tries']}",
        f"first {letter['first_at']}",
        f"last {letter['last_at']}",
    )
    yield indented(letter["reason"])


# --- the service ------------------------------------------------------------------------------------------------


def verification(result: Record) -> RenderableType:
    counted = {name: value for name, value in result.items() if name not in ("ok", "issues", "warnings")}
    found = [indented(issue) for issue in result["issues"]]
    remarks = [note(warning) for warning in result["warnings"]]
    return Group(
        heading("the store is sound" if result["ok"] else "the store is damaged"), *found, *remarks, fields(counted)
    )


def backup(result: Record) -> RenderableType:
    place = shlex.quote(result["destination"])
    return Group(
        fields(result),
        note("it is a store of its own; to check it, run"),
        one_piece(f"MEMOREE_DATA_DIR={place} memoree verify"),
    )


def capabilities(result: Record) -> RenderableType:
    names = [entry["operation"] for entry in result["operations"]]
    return fields({**result, "operations": names})


def text_content(result: Record) -> RenderableType:
    written = result.get("materialized_path")
    return _content(result["content"]) if written is None else note(f"written to {written}")


def _content(content: Any) -> RenderableType:
    """As it is: the terminal wraps lines, and they are copied as they were stored."""
    if isinstance(content, str):
        return one_piece(content, indent=0)
    if content.get("type") == "text":
        return one_piece(content["data"], indent=0)
    if content.get("type") == "base64":
        return note("the content is not text; --output PATH writes it to a file")
    return document(content)


RENDERERS: Mapping[str, Callable[[Record], RenderableType]] = {
    "answer.pack": packs.answer_pack,
    "artifact.put": artifact,
    "artifact.get": artifact,
    "artifact.revise": artifact,
    "artifact.history": history,
    "artifact.forget": artifact,
    "backup.create": backup,
    "citation.get": cited,
    "claim.assert": claim,
    "claim.get": claim,
    "claim.history": history,
    "claim.revise": claim,
    "claim.retract": claim,
    "relation.put": relation,
    "relation.list": relations,
    "conflict.list": conflicts,
    "context.build": built_context,
    "source.register": source,
    "source.get": source,
    "source.ingest": delivery,
    "source.checkpoint": source,
    "source.withdraw": withdrawal,
    "projection.put": projection,
    "projection.list": projections,
    "projection.drop": projection,
    "feedback.record": feedback,
    "feedback.get": feedback,
    "feedback.list": feedback_page,
    "feedback.export": feedback_export,
    "capabilities": capabilities,
    "instructions": text_content,
    "schema": document,
    "inbox.list": inbox_tables.entries,
    "inbox.get": inbox_tables.entry,
    "search": hits,
    "memory.recall": recalled,
    "memory.probe": leads,
    "memory.retrieve": retrieved,
    "verify": verification,
}
"""Operations whose result is more than a list of members."""
