"""`memoree artifact`: immutable revisions of bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memoree.cli.names import parse_revision, parse_whole
from memoree.cli.parsing import Group, current_invocation, key_option
from memoree.cli.wrapper import actor, perform, perform_mutation
from memoree.errors import Code, MemoreeError

SOURCE = "PATH|-"


@click.group(cls=Group)
def artifact() -> None:
    """Store, revise, forget and read artifacts."""


@artifact.command()
@click.argument("source", metavar=SOURCE)
@click.option("--kind", default="document", show_default=True)
@click.option("--title", help="[default: the path]")
@click.option("--media-type", metavar="TYPE", help="[default: by the name's extension; text for standard input]")
@key_option
def put(source: str, kind: str, title: str | None, media_type: str | None, idempotency_key: str | None) -> int:
    """Store a file, or standard input for -, as a new artifact."""
    from memoree.cli.files import read_source

    read = read_source(source)
    given = {
        "kind": kind,
        "title": title if title is not None else read.label,
        "media_type": media_type if media_type is not None else read.media_type,
        "content": read.content,
        "provenance": {"source": read.label},
        "actor": actor(),
    }
    return perform_mutation("artifact.put", given, key=idempotency_key)


@artifact.command()
@click.argument("path", metavar="PATH")
@click.option("--kind", default="document", show_default=True)
@click.option("--title", help="[default: the path]")
@click.option("--media-type", metavar="TYPE", help="[default: by the name's extension]")
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="Names this change: another upload under the same key is a conflict.  [default: a new one]",
)
def upload(path: str, kind: str, title: str | None, media_type: str | None, idempotency_key: str | None) -> int:
    """Store a large file, up to 5 GiB, as a new artifact.

    Needs an http:// or https:// endpoint. The content is sent first, to the server or straight to its store, and named
    in the request; the server checks its length and digest before the artifact exists.
    """
    from memoree.cli.files import label_of, media_type_of, open_source
    from memoree.client.http import HttpEndpoint
    from memoree.client.upload import upload

    invocation = current_invocation()
    endpoint = invocation.open_endpoint()
    if not isinstance(endpoint, HttpEndpoint):
        raise MemoreeError(
            Code.CONFIG_ERROR, "an upload needs a server: start one with `memoree serve`, and name it with --endpoint"
        )
    invocation.resolve_context()  # who has none should know before gigabytes are sent
    found, opened = open_source(path)
    with opened as file:
        upload_id = upload(endpoint, file)
    given = {
        "kind": kind,
        "title": title if title is not None else label_of(found),
        "media_type": media_type if media_type is not None else media_type_of(found),
        "content": {"type": "upload", "upload_id": upload_id},
        "provenance": {"source": label_of(found)},
        "actor": actor(),
    }
    return perform_mutation("artifact.put", given, key=idempotency_key, patient=True)


@artifact.command()
@click.argument("artifact_id", metavar="ID")
@click.option("--revision", metavar="REVISION", help="An older revision.  [default: the current one]")
@click.option("--output", type=click.Path(path_type=Path), metavar="PATH", help="Write the content to this file.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--metadata-only", is_flag=True, help="Leave the content out.")
def get(artifact_id: str, revision: str | None, output: Path | None, force: bool, metadata_only: bool) -> int:
    """Show an artifact, or write its content to a file.

    An http:// or https:// endpoint streams content of any size; otherwise 8 MiB is the limit.
    """
    if force and output is None:
        raise click.UsageError("--force requires --output")
    artifact_id, revision = parse_revision(artifact_id, "artifact", revision)
    given = {
        "artifact_id": artifact_id,
        "revision_id": revision,
        "include_content": not metadata_only,
    }
    if output is None:
        return perform("artifact.get", given)
    from memoree.cli.files import materialize, materialized
    from memoree.client.http import HttpEndpoint

    destination, endpoint = output, current_invocation().open_endpoint()
    if not isinstance(endpoint, HttpEndpoint):
        whole = {**given, "include_content": True}
        return perform("artifact.get", whole, finish=lambda result: materialize(result, destination, replace=force))
    from memoree.client.download import download

    def stream(result: dict[str, Any]) -> dict[str, Any]:
        return materialized(result, lambda file: download(endpoint, result, file), destination, replace=force)

    return perform("artifact.get", {**given, "include_content": False}, finish=stream)


@artifact.command()
@click.argument("artifact_id", metavar="ID")
@click.argument("source", metavar=SOURCE)
@click.option("--if-revision", metavar="REVISION", required=True, help="The revision this change was made from.")
@click.option("--title", help="[default: as before]")
@click.option("--media-type", metavar="TYPE", help="[default: as before, whatever the file is called]")
@key_option
def revise(
    artifact_id: str,
    source: str,
    if_revision: str,
    title: str | None,
    media_type: str | None,
    idempotency_key: str | None,
) -> int:
    """Add a revision; earlier ones stay as they are."""
    from memoree.cli.files import read_source

    artifact_id, _ = parse_revision(artifact_id, "artifact", if_revision)
    read = read_source(source)
    given = {
        "artifact_id": artifact_id,
        "if_revision": if_revision,
        "title": title,
        "media_type": media_type,
        "content": read.content,
        "provenance": {"source": read.label},
        "actor": actor(),
    }
    return perform_mutation("artifact.revise", given, key=idempotency_key)


@artifact.command()
@click.argument("artifact_id", metavar="ID")
@click.option("--limit", type=int, default=50, show_default=True, help="Revisions per page, 1 to 100.")
@click.option("--before-revision-number", type=int, metavar="N", help="Continue below this revision number.")
def history(artifact_id: str, limit: int, before_revision_number: int | None) -> int:
    """List the revisions of an artifact, newest first."""
    artifact_id = parse_whole(artifact_id, "artifact")
    given = {"artifact_id": artifact_id, "limit": limit, "before_revision_number": before_revision_number}
    return perform("artifact.history", given)


@artifact.command()
@click.argument("artifact_id", metavar="ID")
@click.option("--reason", required=True)
@key_option
def forget(artifact_id: str, reason: str, idempotency_key: str | None) -> int:
    """Take an artifact out of current search; nothing is erased.

    A search with --include-historical still lists it, without its text; `artifact get` still returns its bytes.
    """
    given = {"artifact_id": parse_whole(artifact_id, "artifact"), "reason": reason}
    return perform_mutation("artifact.forget", given, key=idempotency_key)
