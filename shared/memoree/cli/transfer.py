"""`memoree export` and `memoree import`: a whole tenant as one archive."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from memoree.cli.jobs import report, say, tenancy_options, with_site, with_tenancy
from memoree.cli.parsing import Command
from memoree.cli.progress import bytes_done
from memoree.errors import Code, MemoreeError, invalid, shown

if TYPE_CHECKING:
    from memoree.jobs.replicated import JobSite
    from memoree.jobs.tenancy import Tenancy
    from memoree.transfer.exporting import Exported
    from memoree.transfer.importing import Imported

STANDARD = Path("-")


@click.command("export", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@tenancy_options
def export_(file: Path, tenant: str | None, data: Path | None) -> int:
    """Write everything a tenant holds into FILE, which must not exist; - is standard output.

    FILE is a tar archive of JSON lines and content, of one commit; the same state always gives the same bytes. Writers
    go on meanwhile.
    """

    async def work(tenancy: Tenancy) -> Exported:
        from memoree.transfer.exporting import export_tenant

        with _new_file(file) as opened, bytes_done("content") as progress:
            return await export_tenant(tenancy, opened, progress)

    exported = with_tenancy(tenant, data, work)
    if file == STANDARD:
        say(f"commit {exported.commit_seq}: {exported.rows} rows, {exported.blobs} blobs")
        return 0
    return report({"file": str(file), **asdict(exported)})


@click.command("import", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@tenancy_options
def import_(file: Path, tenant: str | None, data: Path | None) -> int:
    """Make a new store of the export in FILE; - is standard input.

    With --tenant, a new tenant of a deployment; without, the store of the data directory, which must hold none.
    Nothing is shown before all of it was proved.
    """
    with _existing_file(file) as opened:
        if tenant is None:
            if data is not None:
                raise click.UsageError("--data is for a deployment; name the --tenant")
            return report(asdict(_into_directory(opened)))

        async def work(site: JobSite) -> Imported:
            from memoree.transfer.into_deployment import import_tenant

            return await import_tenant(site, tenant, opened)

        return report({"tenant": tenant, **asdict(with_site(data, work))})


def _into_directory(file: BinaryIO) -> Imported:
    from memoree.paths import discover
    from memoree.transfer.into_directory import import_directory

    return import_directory(file, discover().data_dir)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """The finished file appears at once, durable and for this user only; a failure leaves nothing."""
    if path == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from memoree.backup.database import create_private, flush
    from memoree.backup.publish import rename_without_replacing
    from memoree.ids import new_ulid

    if os.path.lexists(path):
        invalid(f"FILE: {shown(str(path))} exists already")
    staged = path.with_name(f".{path.name}.{new_ulid()}")
    try:
        with create_private(staged) as file:
            yield file
        flush(staged)
        rename_without_replacing(staged, path)
        flush(path.parent)
    except FileExistsError:
        invalid(f"FILE: {shown(str(path))} appeared meanwhile; it was left as it is")
    except OSError as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"{path} cannot be written: {error.strerror}") from error
    finally:
        staged.unlink(missing_ok=True)


@contextmanager
def _existing_file(path: Path) -> Iterator[BinaryIO]:
    if path == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise MemoreeError(Code.INVALID_REQUEST, f"FILE: {shown(str(path))}: {error.strerror}") from error
    with file:
        yield file
