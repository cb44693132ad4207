"""`memoree ingest`: messages for the ingest queue, and what became of those that could not be applied."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import click

from memoree.cli.jobs import report
from memoree.cli.output import print_success
from memoree.cli.parsing import Group, current_invocation

if TYPE_CHECKING:
    from memoree.ingest.dead import DeadLetters

Function = TypeVar("Function", bound=Callable[..., object])

_deployment_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The running stack's directory.  [default: what MEMOREE_ variables describe, else the data directory]",
)


def _letters_argument(function: Function) -> Function:
    every = click.option("--all", "every", is_flag=True, help="All that there are by now.")
    return click.argument("letter_ids", metavar="[LETTER_ID]...", nargs=-1)(every(function))


@click.group(cls=Group)
def ingest() -> None:
    """Publish messages of connectors, and look after those that could not be applied.

    A message registers a source, delivers or withdraws an item, or says how far a source was read: `memoree ingest
    schema` has its form.
    """


@ingest.command()
@click.argument("file", metavar="FILE|-", type=click.File("rb"))
@_deployment_option
def push(file: BinaryIO, data: Path | None) -> int:
    """Publish messages: one JSON object per line of FILE, or of standard input for -.

    Content of any size up to 8 MiB may stand in a message. A line that is no message ends the command, after those
    before it were published; publishing lines again changes nothing.

    A deployment applies them later. The store in the data directory has nobody who would: there they are applied before
    the command ends, and its exit status is 1 when one of them became a dead letter.
    """
    from memoree.cli.ingestion import push as publish

    found = publish(file, data)
    report(found)
    return 1 if found.get("dead_letters") else 0


@ingest.command()
@_deployment_option
def status(data: Path | None) -> int:
    """Say how much waits, for how long, and how many dead letters there are.

    The exit status is 1 when the oldest message has waited too long: no worker keeps up, or none runs.
    """
    from memoree.cli.ingestion import status as look

    found, fine = look(data)
    report(found)
    return 0 if fine else 1


@ingest.command()
def schema() -> int:
    """Print the JSON Schema of messages."""
    from memoree.ingest.message import json_schema

    return print_success(json_schema(), current_invocation())


@ingest.group(cls=Group)
def dead() -> None:
    """Messages that will never be applied as they are, each with its reason."""


@dead.command("list")
@_deployment_option
def list_(data: Path | None) -> int:
    """Show the dead letters, the oldest first."""
    from memoree.cli.ingestion import with_dead_letters

    async def work(letters: DeadLetters) -> dict[str, list[dict[str, object]]]:
        return {"letters": await letters.summaries()}

    found = with_dead_letters(data, work)
    if not current_invocation().for_people:
        return report(found)
    from memoree.cli.tables import dead_letters
    from memoree.cli.terminal import console

    console().print(dead_letters(found["letters"]), crop=False)
    return 0


@dead.command()
@click.argument("letter_id", metavar="LETTER_ID")
@_deployment_option
def show(letter_id: str, data: Path | None) -> int:
    """Show one dead letter with its whole message."""
    from memoree.cli.ingestion import with_dead_letters

    async def work(letters: DeadLetters) -> dict[str, object]:
        return (await letters.find(letter_id)).shown()

    return report(with_dead_letters(data, work))


@dead.command()
@_letters_argument
@_deployment_option
def retry(letter_ids: tuple[str, ...], every: bool, data: Path | None) -> int:
    """Send messages again, once their reason is gone.

    They go to the end of their source's line. One whose item has a later state by then changes nothing.
    """
    found = _changed(letter_ids, every, data, lambda dead: dead.retry_all() if every else dead.retry(letter_ids))
    return report({"retried": found})


@dead.command()
@_letters_argument
@_deployment_option
def drop(letter_ids: tuple[str, ...], every: bool, data: Path | None) -> int:
    """Remove dead letters for good."""
    found = _changed(letter_ids, every, data, lambda dead: dead.drop_all() if every else dead.drop(letter_ids))
    return report({"dropped": found})


def _changed(
    letter_ids: tuple[str, ...], every: bool, data: Path | None, change: Callable[[DeadLetters], Awaitable[int]]
) -> int:
    from memoree.cli.ingestion import with_dead_letters

    if every == bool(letter_ids):
        raise click.UsageError("name dead letters, or all of them by --all")
    return with_dead_letters(data, change)
