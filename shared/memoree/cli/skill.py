"""`memoree skill`: teach an agent to use this memory, in the files that its client reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memoree.cli.output import print_success
from memoree.cli.parsing import Group, current_invocation
from memoree.errors import Code, MemoreeError, invalid
from memoree.skills.clients import CLIENTS, SCOPES, Client, Scope

if TYPE_CHECKING:
    from memoree.skills.installing import Edit

Function = Callable[..., Any]


def _place_options(function: Function) -> Function:
    function = click.option(
        "--dir",
        "directory",
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        help="The project.  [default: the working directory]",
    )(function)
    function = click.option("--scope", type=click.Choice(SCOPES), default="project", show_default=True)(function)
    return click.option("--client", type=click.Choice(CLIENTS), required=True, help="Who is taught.")(function)


@click.group(cls=Group)
def skill() -> None:
    """Teach an agent's client to use this memory: instructions and the entry of the MCP server."""


@skill.command()
@_place_options
@click.option("--print", "only_print", is_flag=True, help="Write nothing; print what would be written.")
def install(client: Client, scope: Scope, directory: Path | None, only_print: bool) -> int:
    """Write the instructions, and the MCP server where the client reads such a file.

    In a file of yours a marked block is added or replaced, and one entry among the servers; all else stays as it is,
    byte for byte. A file that cannot be understood, or that has another server of this name, is refused, and then
    nothing is written. With --endpoint URL or --token-file FILE the server is started with these, and an entry of
    before is replaced. The program writes no token.
    """
    from memoree.skills import installing

    root = _root(scope, directory)
    options = _server_options()
    edits = installing.installation(client, scope, root, options, replace=bool(options))
    if only_print:
        return _printed(client, scope, edits)
    _apply(edits, root)
    return _report(client, scope, edits, installing.require_places(client, scope).by_hand)


@skill.command()
@_place_options
def uninstall(client: Client, scope: Scope, directory: Path | None) -> int:
    """Take out what install wrote, and files and directories that held nothing else."""
    from memoree.skills import installing

    root = _root(scope, directory)
    edits = installing.removal(client, scope, root)
    _apply(edits, root)
    return _report(client, scope, edits, ())


@skill.command()
def show() -> int:
    """Print the instructions, to be pasted wherever a client takes some."""
    from memoree.skills import clients

    return _text(clients.text(), {"content": clients.text()})


def _root(scope: Scope, directory: Path | None) -> Path:
    if scope == "user":
        if directory is not None:
            raise click.UsageError("--dir is the directory of a project; the files of a user have their place")
        return Path.home()
    return directory or Path()


def _server_options() -> list[str]:
    """How the server finds the memory, as it was said on this line. Raises `CONFIG_ERROR` for what is no address."""
    invocation = current_invocation()
    options = []
    if invocation.endpoint:
        from urllib.parse import urlsplit

        if "@" in urlsplit(invocation.endpoint).netloc:
            invalid("--endpoint: it holds a user name, which is not written to files; MEMOREE_TOKEN is the token")
        invocation.open_endpoint()
        options += ["--endpoint", invocation.endpoint]
    if invocation.token_file:
        options += ["--token-file", str(invocation.token_file.absolute())]
    return options


def _apply(edits: Sequence[Edit], root: Path) -> None:
    from memoree.skills import installing

    try:
        installing.apply(edits, root)
    except OSError as error:
        raise MemoreeError(
            Code.CONFIG_ERROR, f"{error.filename or root} cannot be written: {error.strerror}"
        ) from error


def _report(client: Client, scope: Scope, edits: Sequence[Edit], by_hand: Sequence[str]) -> int:
    files = [{"part": edit.part, "path": os.fspath(edit.path), "action": edit.action} for edit in edits]
    result = {"client": client, "scope": scope, "files": files, "by_hand": list(by_hand)}
    invocation = current_invocation()
    if not invocation.for_people:
        return print_success(result, invocation)
    from memoree.cli import terminal

    console = terminal.console()
    for edit in edits:
        console.print(terminal.one_piece(f"{edit.action:<10} {edit.path}", indent=0), crop=False)
    for step in by_hand:
        console.print(terminal.note(f"to do by hand: {step}"))
    return 0


def _printed(client: Client, scope: Scope, edits: Sequence[Edit]) -> int:
    contents = [(os.fspath(edit.path), (edit.after or b"").decode(errors="replace")) for edit in edits]
    files = [{"path": path, "content": content} for path, content in contents]
    text = "\n".join(f"==> {path} <==\n{content.rstrip()}\n" for path, content in contents)
    return _text(text, {"client": client, "scope": scope, "files": files})


def _text(text: str, result: dict[str, Any]) -> int:
    """As it is, also when it is piped: it is there to be put into a file. An envelope only where one is asked for."""
    invocation = current_invocation()
    if invocation.json or invocation.pretty:
        return print_success(result, invocation)
    if sys.stdout.isatty():
        from memoree.cli.terminal import visible

        text = visible(text)
    sys.stdout.write(text)
    return 0
