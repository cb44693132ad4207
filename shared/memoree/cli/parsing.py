"""What all commands share on the line: options that may stand anywhere, and groups that load when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from memoree.cli.invocation import ENDPOINT_VARIABLE, Invocation

Function = TypeVar("Function", bound=Callable[..., Any])

HORIZONS = ("ambient", "workspace", "personal")


def invocation_of(context: click.Context) -> Invocation:
    found = context.find_object(Invocation)
    assert found is not None, "the entry point hands one to the root command"
    return found


def current_invocation() -> Invocation:
    return invocation_of(click.get_current_context())


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Remember an option wherever it stood; one that was not given does not undo another."""
    if value:
        assert parameter.name is not None
        setattr(invocation_of(context), parameter.name, value)


def _global_options(*, hidden: bool) -> list[click.Parameter]:
    shared: dict[str, Any] = {"expose_value": False, "callback": _keep, "hidden": hidden}
    return [
        click.Option(
            ["--endpoint"],
            metavar="URL",
            help="http://HOST:PORT, https://HOST or unix://PATH; without one, the store in the data directory.  "
            f"[env: {ENDPOINT_VARIABLE}]",
            **shared,
        ),
        click.Option(
            ["--token-file"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The bearer token, alone or in a tokens file of one token.  [env: MEMOREE_TOKEN, the token itself]",
            **shared,
        ),
        click.Option(["--json"], is_flag=True, help="Print the response envelope, also on a terminal.", **shared),
        click.Option(["--pretty"], is_flag=True, help="Indent the JSON.", **shared),
        click.Option(["--no-autostart"], is_flag=True, help="Accepted; no command starts a server.", **shared),
    ]


class Command(click.Command):
    """A command that understands the global options without listing them in its help."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_global_options(hidden=True))


class Group(click.Group):
    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_global_options(hidden=self.name != "memoree"))


class LazyGroup(Group):
    """A group whose commands are named as `module:attribute` and imported when they are looked up."""

    def __init__(self, *args: Any, lazy: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._lazy:
            import difflib  # only who mistypes waits for it

            if near := difflib.get_close_matches(args[0], self._lazy):
                ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = self._lazy.get(cmd_name)
        if target is None:
            return None
        module, attribute = target.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


def horizon_options(function: Function) -> Function:
    """`--horizon` and `--reason`: how far a read looks, and why it may look beyond the project."""
    function = click.option("--reason", help="Why the search may go beyond the ambient context.")(function)
    return click.option(
        "--horizon",
        type=click.Choice(HORIZONS),
        default=HORIZONS[0],
        show_default=True,
        help="How far to look; anything but ambient needs a --reason.",
    )(function)


def key_option(function: Function) -> Function:
    """`--idempotency-key`, of every command that changes the store."""
    return click.option(
        "--idempotency-key",
        metavar="KEY",
        help="Names this change: sending it again under the same key changes nothing.  [default: a new one]",
    )(function)
