"""`memoree link`, `relation` and `conflict`: edges between entities, and what they set against each other."""

from __future__ import annotations

import click

from memoree.cli.names import parse_entity
from memoree.cli.parsing import Command, Group, horizon_options, key_option
from memoree.cli.wrapper import parse_object, perform, perform_mutation

RELATIONS = ("derived-from", "supports", "contradicts", "supersedes", "references", "duplicates")
DIRECTIONS = ("both", "incoming", "outgoing")
ENTITY = "artifact:ID|claim:ID"


def _relation_of(name: str) -> str:
    """The protocol's spelling of a relation."""
    return name.replace("-", "_")


def _put(source: str, relation: str, target: str, metadata: str | None, key: str | None) -> int:
    source_type, source_id = parse_entity(source)
    target_type, target_id = parse_entity(target)
    given = {
        "source_type": source_type,
        "source_id": source_id,
        "relation": _relation_of(relation),
        "target_type": target_type,
        "target_id": target_id,
        "metadata": parse_object("--metadata", metadata),
    }
    return perform_mutation("relation.put", given, key=key)


@click.command(cls=Command)
@click.argument("source", metavar="SOURCE")
@click.argument("relation", metavar="RELATION", type=click.Choice(RELATIONS))
@click.argument("target", metavar="TARGET")
@key_option
def link(source: str, relation: str, target: str, idempotency_key: str | None) -> int:
    """Relate two entities; SOURCE and TARGET are artifact:ID or claim:ID.

    RELATION is derived-from, supports, contradicts, supersedes, references or duplicates. What supersedes is the newer
    one. Only claims contradict or supersede each other, and only while both are live.
    """
    return _put(source, relation, target, None, idempotency_key)


@click.group(cls=Group)
def relation() -> None:
    """Relate entities, and list the relations of one."""


@relation.command("put")
@click.argument("source", metavar="SOURCE")
@click.argument("relation", metavar="RELATION", type=click.Choice(RELATIONS))
@click.argument("target", metavar="TARGET")
@click.option("--metadata", metavar="JSON", help="An object to keep with the relation, for good.")
@key_option
def put(source: str, relation: str, target: str, metadata: str | None, idempotency_key: str | None) -> int:
    """As `memoree link`, with metadata."""
    return _put(source, relation, target, metadata, idempotency_key)


@relation.command("list")
@click.argument("entity", metavar=ENTITY)
@click.option("--direction", type=click.Choice(DIRECTIONS), default=DIRECTIONS[0], show_default=True)
@click.option("--relation", type=click.Choice(RELATIONS), help="Only relations of this type.")
@click.option("--limit", type=int, default=100, show_default=True, help="Relations per page, 1 to 100.")
@click.option("--before-commit-seq", type=int, metavar="N", help="Continue below this commit.")
@horizon_options
def list_relations(
    entity: str,
    direction: str,
    relation: str | None,
    limit: int,
    before_commit_seq: int | None,
    horizon: str,
    reason: str | None,
) -> int:
    """List the relations of one artifact or claim, newest first."""
    entity_type, entity_id = parse_entity(entity)
    given = {
        "entity_type": entity_type,
        "entity_id": entity_id,
        "direction": direction,
        "relation": None if relation is None else _relation_of(relation),
        "limit": limit,
        "before_commit_seq": before_commit_seq,
        "horizon": horizon,
        "reason": reason,
    }
    return perform("relation.list", given)


@click.group(cls=Group)
def conflict() -> None:
    """See which claims contradict each other."""


@conflict.command("list")
@click.option("--include-stale", is_flag=True, help="Also cases over revisions that are no longer current.")
@click.option("--limit", type=int, default=100, show_default=True, help="Cases per page, 1 to 100.")
@click.option("--before-case-sequence", type=int, metavar="N", help="Continue below this case.")
@horizon_options
def list_conflicts(
    include_stale: bool, limit: int, before_case_sequence: int | None, horizon: str, reason: str | None
) -> int:
    """List the contradictions that wait for a decision, newest first.

    Retracting or superseding one of the two claims settles a case. Revising one makes its case stale and opens another
    over the new revision: whether the two still contradict each other is for you to say. This command only reads.
    """
    given = {
        "include_stale": include_stale,
        "limit": limit,
        "before_case_sequence": before_case_sequence,
        "horizon": horizon,
        "reason": reason,
    }
    return perform("conflict.list", given)
