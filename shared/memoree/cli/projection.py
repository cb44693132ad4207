"""`memoree projection`: derived text about an artifact, which is never evidence."""

from __future__ import annotations

import click

from memoree.cli.names import parse_revision, parse_span
from memoree.cli.parsing import Group, key_option
from memoree.cli.wrapper import actor, parse_object, perform, perform_mutation, words


@click.group(cls=Group)
def projection() -> None:
    """Attach derived text to exact bytes of an artifact.

    Its words lead to these bytes, as a match that answers nothing by itself.
    """


@projection.command()
@click.argument("artifact_id", metavar="ARTIFACT")
@click.argument("text", nargs=-1, required=True)
@click.option("--revision", metavar="REVISION", required=True, help="The current revision of the artifact.")
@click.option("--projection-key", metavar="KEY", required=True, help="A later put under the same key replaces this.")
@click.option("--kind", required=True, help="Such as summary, alias or question.")
@click.option(
    "--span", "spans", multiple=True, required=True, metavar="START-END", help="Bytes it stands for; may be repeated."
)
@click.option("--generator", required=True, help="What made the text.")
@click.option("--generator-version", required=True)
@click.option("--generator-digest", required=True, help="A digest of how it was made.")
@click.option("--metadata", metavar="JSON", help="An object to keep with the projection.")
@key_option
def put(
    artifact_id: str,
    text: tuple[str, ...],
    revision: str,
    projection_key: str,
    kind: str,
    spans: tuple[str, ...],
    generator: str,
    generator_version: str,
    generator_digest: str,
    metadata: str | None,
    idempotency_key: str | None,
) -> int:
    """Attach TEXT to spans of an artifact's current revision.

    The text is never evidence, and no answer shows it as the artifact's own words. Searches do not use it yet.
    """
    artifact_id, _ = parse_revision(artifact_id, "artifact", revision)
    given = {
        "artifact_id": artifact_id,
        "revision_id": revision,
        "projection_key": projection_key,
        "kind": kind,
        "text": words(text),
        "evidence_spans": [parse_span(span) for span in spans],
        "generator": generator,
        "generator_version": generator_version,
        "generator_digest": generator_digest,
        "metadata": parse_object("--metadata", metadata),
        "actor": actor(),
    }
    return perform_mutation("projection.put", given, key=idempotency_key)


@projection.command("list")
@click.argument("artifact_id", metavar="ARTIFACT")
@click.option("--revision", metavar="REVISION", help="[default: all revisions]")
@click.option("--limit", type=int, default=100, show_default=True, help="Projections, 1 to 100.")
def list_projections(artifact_id: str, revision: str | None, limit: int) -> int:
    """List the projections of an artifact, the last changed first, dropped ones too."""
    artifact_id, revision = parse_revision(artifact_id, "artifact", revision)
    return perform("projection.list", {"artifact_id": artifact_id, "revision_id": revision, "limit": limit})


@projection.command()
@click.argument("projection_id", metavar="ID")
@click.option("--reason", required=True)
@key_option
def drop(projection_id: str, reason: str, idempotency_key: str | None) -> int:
    """Mark a projection as dropped, with the reason; putting it again brings it back."""
    given = {"projection_id": projection_id, "reason": reason, "actor": actor()}
    return perform_mutation("projection.drop", given, key=idempotency_key)
