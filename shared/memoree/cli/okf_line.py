"""What the commands over bundles share on the line: where the bundle is, how mistakes end, and what is printed.

Their contract is not that of the other commands: every mistake exits with status 1 and one line on standard error, and
JSON has an envelope of its own (OKF contract §2).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from memoree.cli.parsing import Command, Function, current_invocation
from memoree.errors import MemoreeError

if TYPE_CHECKING:
    from memoree.okf.bundle import Tiers
    from memoree.okf.dialect import Dialect

ROOT_VARIABLE = "OKF_ROOT"
PERSONAL_VARIABLE = "OKF_GLOBAL_ROOT"
PERSONAL_DEFAULT = Path(".samemind") / "bundle"
"""In the home directory, where the reference program looks without being told to."""


class Mistake(click.ClickException):
    """A line that cannot be carried out."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def show(self, file: Any = None) -> None:
        hint = "" if self.hint is None else f"hint: {self.hint}\n"
        sys.stderr.write(f"Error: {_visible(self.message)}\n{hint}")


class BundleCommand(Command):
    """A command whose every failure is `Error: …` on standard error, and status 1."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as mistake:
            raise Mistake(mistake.format_message()) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MemoreeError as error:
            fail(error.message)


def fail(message: str, hint: str | None = None) -> NoReturn:
    raise Mistake(message, hint)


def root_option(function: Function) -> Function:
    """`--root` and `--compat`, of every command over a bundle."""
    function = click.option(
        "--compat", is_flag=True, help="Read and answer as the reference program does, byte for byte."
    )(function)
    return click.option(
        "--root", metavar="DIR", help=f"The bundle.  [env: {ROOT_VARIABLE}; default: the current directory]"
    )(function)


def secret_option(function: Function) -> Function:
    return click.option("--include-secret", is_flag=True, help="Also nodes that are secret.")(function)


def inbox_option(function: Function) -> Function:
    return click.option("--include-inbox", is_flag=True, help="Also the raw notes of the inbox.")(function)


def bundle_root(*named: str | None) -> Path:
    """The first that is named, else the variable's, else the current directory. Fails for what is no directory."""
    from memoree.okf.bundle import require_bundle

    given = next((name for name in named if name is not None), None)
    root = Path(given if given is not None else os.environ.get(ROOT_VARIABLE) or ".")
    if given == "":
        fail("--root: the name of a directory, not an empty one")
    require_bundle(root)
    return root


def personal_root(dialect: Dialect) -> Path | None:
    """A person's own bundle, if the environment names one. The reference program also looks into the home directory."""
    from memoree.okf.dialect import Dialect

    named = os.environ.get(PERSONAL_VARIABLE)
    if named is not None:
        if named and not Path(named).is_dir():
            warn(f"{PERSONAL_VARIABLE} names no directory, and is left out")
            return None
        return Path(named) if named else None
    default = Path.home() / PERSONAL_DEFAULT
    return default if dialect is Dialect.COMPAT and default.is_dir() else None


def dialect_of(*, compat: bool) -> Dialect:
    from memoree.okf.dialect import Dialect

    return Dialect.COMPAT if compat else Dialect.SERVICE


def tiers_of(*, secret: bool = False, inbox: bool = False, mirror: bool = False) -> Tiers:
    from memoree.okf.bundle import Tiers

    return Tiers(secret=secret, mirror=mirror, inbox=inbox)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def warn(message: str) -> None:
    sys.stderr.write(f"⚠ {_visible(message)}\n")


def note(message: str) -> None:
    sys.stderr.write(f"note: {_visible(message)}\n")


def answer(kind: str, data: Callable[[], Any], lines: Callable[[], Iterable[str]]) -> None:
    """Print the data as a line of JSON where that is asked for, else the lines."""
    if current_invocation().json:
        from memoree.okf.envelope import line

        print_bytes(line(kind, data(), at_ms=now_ms()) + b"\n")
    else:
        print_lines(lines())


def print_lines(lines: Iterable[str]) -> None:
    """Each on one line, whatever it holds: a title must not be able to pass for a row."""
    print_bytes("".join(f"{_visible(line)}\n" for line in lines).encode(errors="backslashreplace"))


def print_bytes(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _visible(text: str) -> str:
    from memoree.cli.terminal import visible

    return visible(text).replace("\n", "\\n")
