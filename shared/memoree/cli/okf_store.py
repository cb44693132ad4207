"""`memoree okf import`, `export` and `watch`: bundles of files into the store, and out of it (OKF contract §8)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memoree.cli.parsing import Command, Function, current_invocation
from memoree.errors import Code, MemoreeError

if TYPE_CHECKING:
    from memoree.bundles.sync import Report, Wishes
    from memoree.client.batches import Door

INCOMPLETE_STATUS = 1
INTERVAL_SECONDS_DEFAULT = 2.0
INTERVAL_SECONDS_MIN = 0.1

_directory = click.Path(path_type=Path)


def _import_options(function: Function) -> Function:
    for option in reversed(
        (
            click.option("--bundle", metavar="NAME", help="What the bundle is called.  [default: as the directory]"),
            click.option("--include-mirror", is_flag=True, help="Also copies of engines' own memories."),
            click.option("--overwrite", is_flag=True, help="Let files win over what was edited in the store."),
            click.option("--allow-empty", is_flag=True, help="Withdraw everything when nothing of it is there."),
        )
    ):
        function = option(function)
    return function


@click.command("import", cls=Command)
@click.argument("directory", metavar="DIR", type=_directory)
@_import_options
@click.option("--dry-run", is_flag=True, help="Send nothing; tell what would be sent.")
def import_(directory: Path, dry_run: bool, **options: Any) -> int:
    """Bring the store to what DIR holds.

    New and changed files are delivered, deleted ones withdrawn; a directory that did not change sends nothing. Secrets
    and the inbox never leave DIR, nor does a file whose front matter or visibility cannot be understood. What was
    edited in the store is not overwritten. Run it again after any interruption.

    The exit status is 1 when something could not be taken; what and why is said.
    """
    from memoree.bundles.sync import import_bundle

    with open_door(writes=not dry_run) as door, _files_done("files") as progress:
        report = import_bundle(directory, door, _wishes(options, dry_run=dry_run), progress)
    return _told(report, dry_run=dry_run)


@click.command("export", cls=Command)
@click.argument("directory", metavar="DIR", type=_directory)
@click.option(
    "--visibility",
    type=click.Choice(("public", "internal")),
    default="internal",
    show_default=True,
    help="What may leave.",
)
@click.option("--dry-run", is_flag=True, help="Write nothing; tell what would be.")
@click.option("--to-gbrain", is_flag=True, help="In gbrain's form, which holds less than OKF.")
def export_(directory: Path, visibility: str, dry_run: bool, to_gbrain: bool) -> int:
    """Write the store's bundle into DIR, which must be new or empty.

    Files are what was imported, byte for byte, and what was edited since. Secrets, mirrors and the inbox never leave.
    """
    from memoree.bundles.sync import stored_content
    from memoree.cli.jobs import report, say
    from memoree.okf import exporting

    place = directory if dry_run else exporting.check_target(directory)
    with open_door(writes=False) as door:
        found = exporting.export(stored_content(door), threshold=visibility, gbrain=to_gbrain)
    if not dry_run:
        exporting.write(found.files, place)
    for warning in found.warnings:
        say(f"⚠ {warning}")
    return report(
        {
            "directory": str(directory),
            "dry_run": dry_run,
            "file_count": len(found.files),
            "byte_count": sum(len(data) for _, data in found.files),
            "left_out": dict(found.left_out),
            "warning_count": len(found.warnings),
        }
    )


@click.command("watch", cls=Command)
@click.argument("directory", metavar="DIR", type=_directory)
@_import_options
@click.option(
    "--interval",
    type=click.FloatRange(min=INTERVAL_SECONDS_MIN),
    default=INTERVAL_SECONDS_DEFAULT,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
def watch(directory: Path, interval: float, **options: Any) -> int:
    """Import DIR, and again whenever a file of it changes, until interrupted.

    A look reads names and times only. While the store does not answer it is tried again.
    """
    from memoree.bundles.watching import watch as watched
    from memoree.cli.jobs import say

    def tell(report: Report) -> None:
        if report.commands:
            said = f"{report.created} new, {report.revised} changed, {report.withdrawn} withdrawn"
            say(said if report.is_complete else f"{said}; {len(report.problems) + len(report.conflicts)} not taken")

    with open_door(writes=True) as door:
        watched(directory, door, _wishes(options), interval_seconds=interval, tell=tell, warn=say)
    return 0


def _wishes(options: dict[str, Any], *, dry_run: bool = False) -> Wishes:
    from memoree.bundles.sync import Wishes
    from memoree.cli.wrapper import actor

    return Wishes(**options, dry_run=dry_run, actor=actor() or None)


@contextmanager
def open_door(*, writes: bool) -> Iterator[Door]:
    """The store that the line names. Without an address it is the data directory's, opened for as long as this takes;
    who only reads makes none where none is."""
    from memoree.client.batches import EmbeddedDoor, EndpointDoor, NoStore

    invocation = current_invocation()
    if invocation.address is not None:
        yield EndpointDoor(invocation.open_endpoint(), invocation.ambient)
        return
    from memoree.assembly import embedded_facts, embedded_service
    from memoree.data_directory import has_store
    from memoree.paths import discover, prepare_data_dir

    data_dir = discover().data_dir
    try:
        if not writes and not has_store(data_dir):
            yield NoStore()
            return
    except OSError as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"the data directory {data_dir} cannot be used: {error}") from error
    prepare_data_dir(data_dir)
    service = embedded_service(data_dir, facts=embedded_facts(running=False))
    try:
        yield EmbeddedDoor(service, invocation.ambient)
    finally:
        service.close_sync()


@contextmanager
def _files_done(what: str) -> Iterator[Callable[[int], None]]:
    """A count on standard error. Where that is no terminal, nothing is shown."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done: bar.update(task, completed=done)


def _told(found: Report, *, dry_run: bool) -> int:
    from memoree.cli.jobs import report, say

    if current_invocation().for_people:
        for path in found.conflicts:
            say(f"conflict {path}: it was changed here and in the store; --overwrite takes the file")
        for path, reason in found.problems.items():
            say(f"refused {path}: {reason}")
        for note in found.notes:
            say(f"note: {note}")
        if found.secrets:
            say(f"note: files that stay outside the store, secret or in the inbox: {found.secrets}")
    report({**found.to_json(), "dry_run": dry_run})
    return 0 if found.is_complete else INCOMPLETE_STATUS
