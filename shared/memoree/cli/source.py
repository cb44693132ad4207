"""`memoree source`: external systems, and the items they deliver."""

from __future__ import annotations

import click

from memoree.cli.parsing import Group, key_option
from memoree.cli.wrapper import actor, parse_object, perform, perform_mutation

HEALTHS = ("unknown", "healthy", "degraded", "error")


@click.group(cls=Group)
def source() -> None:
    """Register external systems, and deliver and withdraw their items."""


@source.command()
@click.argument("name")
@click.option("--kind", required=True, help="What kind of adapter delivers, such as wiki_adapter.")
@click.option("--locator", help="Where the system is, such as its address.")
@click.option("--metadata", metavar="JSON", help="An object to keep with the source.")
@key_option
def register(name: str, kind: str, locator: str | None, metadata: str | None, idempotency_key: str | None) -> int:
    """Register an external system; credentials are never stored.

    NAME is taken once per workspace, project and task. Registering it again is refused, and says which id has it.
    """
    given = {
        "name": name,
        "kind": kind,
        "locator": locator,
        "metadata": parse_object("--metadata", metadata),
        "actor": actor(),
    }
    return perform_mutation("source.register", given, key=idempotency_key)


@source.command()
@click.argument("source_id", metavar="ID")
def get(source_id: str) -> int:
    """Show a source: its health, its cursor, when it was last heard of."""
    return perform("source.get", {"source_id": source_id})


@source.command()
@click.argument("source_id", metavar="ID")
@click.argument("content", metavar="PATH|-")
@click.option("--external-id", metavar="ID", required=True, help="What the system calls the item.")
@click.option("--external-revision", metavar="REVISION", required=True, help="What it calls this state of it.")
@click.option("--kind", default="document", show_default=True, help="The same for all revisions of an item.")
@click.option("--title", help="[default: the external id]")
@click.option("--media-type", metavar="TYPE", help="[default: by the name's extension; text for standard input]")
@click.option("--provenance", metavar="JSON", help="An object to keep with the revision.")
@click.option("--observed-at", metavar="TIME", help="RFC 3339.  [default: now]")
@click.option("--cursor", help="Where the system is to be read on.  [default: as before]")
@key_option
def ingest(
    source_id: str,
    content: str,
    external_id: str,
    external_revision: str,
    kind: str,
    title: str | None,
    media_type: str | None,
    provenance: str | None,
    observed_at: str | None,
    cursor: str | None,
    idempotency_key: str | None,
) -> int:
    """Deliver one item in one revision: a file, or standard input for -.

    The same revision delivered again changes nothing; with another content, title, kind, media type or provenance it is
    a conflict.
    """
    from memoree.cli.files import read_source

    read = read_source(content)
    given = {
        "source_id": source_id,
        "external_id": external_id,
        "external_revision": external_revision,
        "kind": kind,
        "title": title if title is not None else external_id,
        "media_type": media_type if media_type is not None else read.media_type,
        "content": read.content,
        "provenance": parse_object("--provenance", provenance),
        "observed_at": observed_at,
        "cursor": cursor,
        "actor": actor(),
    }
    return perform_mutation("source.ingest", given, key=idempotency_key)


@source.command()
@click.argument("source_id", metavar="ID")
@click.option("--health", type=click.Choice(HEALTHS), required=True)
@click.option("--cursor", help="Where the system is to be read on.  [default: as before]")
@click.option("--message", help="About the health; left out, the source has none.")
@click.option("--observed-at", metavar="TIME", help="RFC 3339.  [default: now]")
@key_option
def checkpoint(
    source_id: str,
    health: str,
    cursor: str | None,
    message: str | None,
    observed_at: str | None,
    idempotency_key: str | None,
) -> int:
    """Record how a source is, and how far it was read."""
    given = {
        "source_id": source_id,
        "health": health,
        "cursor": cursor,
        "message": message,
        "observed_at": observed_at,
        "actor": actor(),
    }
    return perform_mutation("source.checkpoint", given, key=idempotency_key)


@source.command()
@click.argument("source_id", metavar="ID")
@click.argument("external_id", metavar="EXTERNAL_ID")
@click.option("--reason", required=True)
@click.option("--observed-at", metavar="TIME", help="RFC 3339.  [default: now]")
@key_option
def withdraw(
    source_id: str, external_id: str, reason: str, observed_at: str | None, idempotency_key: str | None
) -> int:
    """Take an item that is gone from its system out of retrieval; nothing is erased."""
    given = {
        "source_id": source_id,
        "external_id": external_id,
        "reason": reason,
        "observed_at": observed_at,
        "actor": actor(),
    }
    return perform_mutation("source.withdraw", given, key=idempotency_key)
