"""`memoree mcp`: the memory as tools for a model, on standard input and output."""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING, Any

import click

from memoree.cli.invocation import Invocation
from memoree.cli.output import FAILURE_STATUS, explain_failure, status_of
from memoree.cli.parsing import Command, current_invocation
from memoree.errors import Code, MemoreeError

if TYPE_CHECKING:
    from memoree.client.request import Endpoint
    from memoree.mcp.asking import Caller

PROFILES = ("agent", "okf")
AGENT_VARIABLES = ("MEMOREE_ACTOR", "SAMEMIND_AGENT")


@click.command("mcp", cls=Command)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default=PROFILES[0],
    show_default=True,
    help="Which tools: everything, or the ten of the OKF memory protocol.",
)
def mcp_command(profile: str) -> int:
    """Serve the Model Context Protocol to the client that starts this command.

    It works in the context of the current directory, on the store that --endpoint names, or on the one in the data
    directory. MEMOREE_ACTOR says which agent it is whose writes these are. Standard output is the client's: typed in a
    terminal, it waits for requests.
    """
    try:
        _serve(current_invocation(), profile)
    except MemoreeError as error:
        explain_failure(error.to_wire(), None)
        return status_of(error.code)
    except Exception:
        traceback.print_exc()
        return FAILURE_STATUS
    return 0


def _serve(invocation: Invocation, profile: str) -> None:
    """Standard output is the client's: what goes wrong here is told on standard error. Raises `CONFIG_ERROR`."""
    try:
        import anyio

        import mcp  # noqa: F401 - is it there?
    except ModuleNotFoundError as error:
        raise MemoreeError(
            Code.CONFIG_ERROR, f"{error.name} is not installed; `pip install 'memoree[mcp]'` installs what is missing"
        ) from error
    from memoree.mcp.stdio import serve

    site = _Site(invocation)
    try:
        anyio.run(lambda: serve(site.caller, profile=profile))
    finally:
        site.close()


class _Site:
    """What the requests of the client are answered with. The context is looked up each time: a project may be made
    while the client runs."""

    def __init__(self, invocation: Invocation) -> None:
        import asyncio

        from memoree.mcp.endpoints import CONCURRENT_MAX

        self._invocation = invocation
        self._endpoint = _endpoint(invocation)
        self._gate = asyncio.Semaphore(CONCURRENT_MAX)
        self._agent = next((name for variable in AGENT_VARIABLES if (name := os.environ.get(variable))), None)

    async def caller(self, _: Any) -> Caller:
        """Raises `NO_AMBIENT_CONTEXT` and `CONFIG_ERROR`."""
        from memoree.mcp.asking import Caller
        from memoree.mcp.endpoints import EndpointAsk

        ambient = self._invocation.ambient()
        return Caller(EndpointAsk(self._endpoint, ambient, self._gate), ambient["context"], self._agent)

    def close(self) -> None:
        from memoree.mcp.endpoints import HeldStore

        if isinstance(self._endpoint, HeldStore):
            self._endpoint.close()


def _endpoint(invocation: Invocation) -> Endpoint:
    from memoree.client.http import HttpEndpoint
    from memoree.mcp.endpoints import HeldStore
    from memoree.paths import discover

    if invocation.address is None:
        return HeldStore(discover().data_dir)
    endpoint = invocation.open_endpoint()
    if isinstance(endpoint, HttpEndpoint):
        endpoint.strong = True
    return endpoint
