"""`memoree session exec`: a task's context for one process and its children, and for nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping

import click

from memoree.cli.invocation import ENDPOINT_VARIABLE, NO_AUTOSTART_VARIABLE, Invocation
from memoree.cli.parsing import Command, Group, current_invocation
from memoree.errors import invalid, shown

KILLED_STATUS = 1
FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@click.group(cls=Group)
def session() -> None:
    """Run agents inside a task."""


@session.command(
    "exec", cls=Command, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("--task", required=True, metavar="NAME", help="The same name in the same project is the same task.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(task: str, command: tuple[str, ...]) -> int:
    """Run COMMAND with the task's context in MEMOREE_CONTEXT; ends with its exit status.

    Everything after the name of the command belongs to it.
    """
    if not task.strip():
        invalid("--task: a task needs a name that is not blank")
    environment = {**os.environ, **_exports(current_invocation(), task)}
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        invalid(f"{shown(command[0])} cannot be started: {error.strerror}")
    return _wait(child)


def _exports(invocation: Invocation, task: str) -> Mapping[str, str]:
    import orjson

    from memoree.context import CONTEXT_VARIABLE, task_context, wire_form

    context = task_context(invocation.resolve_context().context, task)
    exports = {CONTEXT_VARIABLE: orjson.dumps(wire_form(context)).decode()}
    if invocation.address is not None:
        exports[ENDPOINT_VARIABLE] = invocation.address
    if invocation.no_autostart:
        exports[NO_AUTOSTART_VARIABLE] = "true"
    return exports


def _wait(child: subprocess.Popen[bytes]) -> int:
    """The child's status. Ctrl-C reaches it from the terminal and is its to answer; what is sent to us alone is
    passed on."""
    previous = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    for number in FORWARDED_SIGNALS:
        previous[number] = signal.signal(number, lambda received, _frame: child.send_signal(received))
    try:
        status = child.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return status if status >= 0 else KILLED_STATUS
