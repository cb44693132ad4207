"""Commands that start and stop servers: `serve` for the store in a directory, `up` and its kin for the stack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from memoree.cli.parsing import Command, Group

HOST_DEFAULT = "127.0.0.1"
PORT_DEFAULT = 7077
STACK_DIRECTORY = "stack"

Function = TypeVar("Function", bound=Callable[..., object])


def _data_dir_option(help_: str) -> Callable[[Function], Function]:
    return click.option("--data", "--data-dir", "data_dir", type=click.Path(path_type=Path), metavar="DIR", help=help_)


_stack_dir_option = _data_dir_option(
    "Everything the stack keeps on this host.  [default: stack/ in the data directory]"
)


@click.command(cls=Command)
@_data_dir_option("The store.  [env: MEMOREE_DATA_DIR]")
@click.option("--host", default=HOST_DEFAULT, show_default=True, help="Other than loopback only with --tokens.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT_DEFAULT, show_default=True, help="0: any free one.")
@click.option(
    "--socket",
    is_flag=False,
    flag_value="",
    metavar="[PATH]",
    help="Framed transport on a Unix socket instead.  [env: MEMOREE_SOCKET; default path: run/memoree.sock]",
)
@click.option("--tokens", metavar="FILE", help="Tokens file, or s3://BUCKET/KEY; without one, no login.")
@click.option("--cors-origins", metavar="LIST", help="Whose pages may ask, with a token.  [default: *, which is all]")
@click.option("--metrics-disabled", is_flag=True, help="Answer 404 at /metrics.")
def serve(
    data_dir: Path | None,
    host: str,
    port: int,
    socket: str | None,
    tokens: str | None,
    cors_origins: str | None,
    metrics_disabled: bool,
) -> int:
    """Serve the store in the data directory over HTTP, or over a Unix socket.

    The socket is private to this user. Runs until it is interrupted. Logs go to standard error, and once it is ready, a
    line LISTENING_ON HOST:PORT or PATH.
    """
    from memoree.cli.serving import serve_http, serve_socket
    from memoree.paths import discover

    if socket is not None and tokens is not None:
        raise click.UsageError("--tokens is for HTTP; the socket belongs to one user")
    paths = discover()
    store = data_dir or paths.data_dir
    if socket is not None:
        return serve_socket(store, Path(socket) if socket else paths.socket)
    return serve_http(
        store,
        host=host,
        port=port,
        tokens_file=tokens,
        cors_origins=cors_origins,
        metrics_disabled=metrics_disabled,
    )


@click.command(cls=Command)
@_stack_dir_option
@click.option("--api-processes", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0: any free one.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0: any free one.")
@click.option("--detach", is_flag=True, help="Return as soon as it is ready.")
@click.option("--tokens", metavar="FILE", help="Tokens file, or s3://BUCKET/KEY.  [default: one that is generated]")
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Requests per second and tenant.")
@click.option("--burst", type=click.IntRange(1), metavar="N", help="Requests a tenant may send at once.")
@click.option("--settings", type=click.Path(path_type=Path), metavar="FILE", help="Further settings, NAME=VALUE lines.")
def up(
    data_dir: Path | None,
    api_processes: int,
    port: int,
    metrics_port: int,
    detach: bool,
    tokens: str | None,
    rate: float | None,
    burst: int | None,
    settings: Path | None,
) -> int:
    """Start the stack: an S3 store, the writer and the api processes.

    Every start takes a free port, unless --port names one: an endpoint that was noted is then no longer right.
    """
    from memoree.cli.serving import known_settings, read_settings
    from memoree.stack.control import up as start
    from memoree.stack.options import UpOptions

    options = UpOptions(
        data_dir=_stack_dir(data_dir),
        api_processes=api_processes,
        port=port,
        metrics_port=metrics_port,
        detach=detach,
        tokens_file=tokens,
        rate_per_second=rate,
        rate_burst=burst,
        overrides=known_settings(read_settings(settings)) if settings is not None else {},
    )
    return start(options, _in_foreground())


def _in_foreground() -> list[str]:
    """This very command line without `--detach`, for a process of its own."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--detach"]
    return [sys.executable, "-m", "memoree.cli.main", *arguments]


@click.command(cls=Command)
@_stack_dir_option
def down(data_dir: Path | None) -> int:
    """Stop the stack; what was acknowledged is in the store."""
    from memoree.stack.control import down as stop

    return stop(_stack_dir(data_dir))


@click.command(cls=Command)
@_stack_dir_option
def status(data_dir: Path | None) -> int:
    """Say whether the stack runs and is ready; the exit status is 0 only then."""
    from memoree.stack.control import status as show

    return show(_stack_dir(data_dir))


@click.group(cls=Group)
def worker() -> None:
    """Run one part of a deployment in this process."""


@worker.command()
@_data_dir_option("The directory of a running stack, to work for it.")
def writer(data_dir: Path | None) -> int:
    """Apply queued writes until stopped.

    The deployment is the running stack in DIR, or described by MEMOREE_ variables.
    """
    from memoree.cli.working import work_as_writer

    return work_as_writer(data_dir)


@worker.command("ingest")
@_data_dir_option("The directory of a running stack, to work for it.")
def ingest(data_dir: Path | None) -> int:
    """Apply the messages of connectors until stopped.

    The deployment is the running stack in DIR, or described by MEMOREE_ variables; without either it is the store in
    the data directory.
    """
    from memoree.cli.ingestion import work_for_connectors

    return work_for_connectors(data_dir)


@worker.command("jobs")
@_data_dir_option("The directory of a running stack, to work for it.")
def jobs(data_dir: Path | None) -> int:
    """Run backups, verifications and garbage collection on schedule until stopped.

    Of several such processes one does the work. The deployment is the running stack in DIR, or described by MEMOREE_
    variables; MEMOREE_BACKUP_EVERY_SECONDS and its like say how often.
    """
    from memoree.cli.working import work_on_schedule

    return work_on_schedule(data_dir)


def _stack_dir(data_dir: Path | None) -> Path:
    from memoree.paths import discover

    return data_dir or discover().data_dir / STACK_DIRECTORY
