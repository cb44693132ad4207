"""`memoree call`, and the operations that say what the store can do and how it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memoree.cli.jobs import progress, report, tenancy_options, with_site
from memoree.cli.parsing import Command, current_invocation
from memoree.cli.wrapper import perform

INSTRUCTION_FORMATS = "markdown|json|agents-md|claude-md"


@click.command("call", cls=Command)
def call_command() -> int:
    """Answer one JSON request from standard input with one JSON envelope.

    Reads standard input to its end. Attaches the ambient context when the operation needs one and the request has
    none. Never invents an idempotency key, never asks, never pages. Exit status: 0 success, 2 invalid request or
    configuration, 3 not found, 4 conflict, 5 no context, 6 not visible yet, 7 out of scope, 1 anything else.
    """
    from memoree.cli.call import call

    return call(current_invocation())


@click.command(cls=Command)
@click.option("--format", "format_", metavar=INSTRUCTION_FORMATS, default="markdown", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), metavar="PATH", help="Write the text to this file.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def instructions(format_: str, output: Path | None, force: bool) -> int:
    """Text that teaches an agent how to use the protocol.

    --output AGENTS.md writes the text alone; a redirected standard output holds the envelope.
    """
    if output is None:
        if force:
            raise click.UsageError("--force requires --output")
        return perform("instructions", {"format": format_})
    destination = output

    def write(result: dict[str, Any]) -> dict[str, Any]:
        import orjson

        from memoree.cli.files import written

        content = result["content"]
        data = content.encode() if isinstance(content, str) else orjson.dumps(content, option=orjson.OPT_INDENT_2)
        return written(result, data, destination, replace=force)

    return perform("instructions", {"format": format_}, finish=write)


@click.command(cls=Command)
def schema() -> int:
    """JSON schemas of all requests and results."""
    return perform("schema", {})


@click.command(cls=Command)
def capabilities() -> int:
    """Operations and limits of the server."""
    return perform("capabilities", {})


@click.command(cls=Command)
def doctor() -> int:
    """State of the store: versions, storage and retrieval modes, the last commit.

    `running` says whether a server answered; `daemon_pid` is the process that did.
    """
    return perform("doctor", {})


@click.command(cls=Command)
@tenancy_options
@click.option("--full", is_flag=True, help="With --tenant: read every change file, blob and backup whole.")
def verify(tenant: str | None, data: Path | None, full: bool) -> int:
    """Check the store against itself: rows, indexes, blobs, events, conflict cases.

    The exit status is 0 whatever is found; read `ok` in the result. Where no store is, that is a CONFIG_ERROR. With
    --tenant, everything that a deployment's bucket keeps of the tenant is checked, and the exit status is 1 when
    something is wrong.
    """
    if tenant is None:
        if data is not None or full:
            raise click.UsageError("--data and --full are for a deployment; name the --tenant")
        return perform("verify", {})
    from memoree.jobs.scheduled import verify as verify_all

    done = with_site(data, lambda site: verify_all(site, tenant, full=full, progress=progress))
    return report(done.result) or (1 if done.problems else 0)
