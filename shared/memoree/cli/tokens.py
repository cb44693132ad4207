"""The work of `memoree token`: on which tokens file, and what is told of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from memoree.cli.server import STACK_DIRECTORY
from memoree.cli.serving import read_deployment
from memoree.envelope import parse
from memoree.errors import Code, MemoreeError
from memoree.paths import discover
from memoree.stack.supervisor import DEPLOYMENT_NAME
from memoree.tokens.administration import TokensAdministration
from memoree.tokens.document import TokenEntry
from memoree.tokens.places import FILE_VARIABLE, VARIABLES, TokensPlace, named_place
from memoree.tokens.sources import source_of

Result = TypeVar("Result")


def create_token(entry: dict[str, Any], tokens: str | None, data: Path | None) -> dict[str, Any]:
    """The new token, and what it may do. Raises `INVALID_REQUEST` and, as all here, what the tokens file raises."""
    checked = parse(TokenEntry, entry)

    async def work(administration: TokensAdministration) -> dict[str, Any]:
        secret, made = await administration.create(checked)
        return {"token": secret, **made.to_wire()}

    return _administered(tokens, data, work)


def list_tokens(tenant: str | None, tokens: str | None, data: Path | None) -> dict[str, Any]:
    async def work(administration: TokensAdministration) -> dict[str, Any]:
        found = await administration.listed(lambda entry: tenant in (None, entry.tenant))
        return {"tokens": [token.to_wire() for token in found.tokens], "ignored": found.ignored}

    return _administered(tokens, data, work)


def revoke_token(id_: str, tokens: str | None, data: Path | None) -> dict[str, Any]:
    async def work(administration: TokensAdministration) -> dict[str, Any]:
        return (await administration.revoke(id_.lower())).to_wire()

    return _administered(tokens, data, work)


def _administered(
    tokens: str | None, data: Path | None, work: Callable[[TokensAdministration], Awaitable[Result]]
) -> Result:
    async def run() -> Result:
        source = source_of(_place(tokens, data))
        async with source.opened():
            return await work(TokensAdministration(source))

    return asyncio.run(run())


def _place(tokens: str | None, data: Path | None) -> TokensPlace:
    """The file that was named; else the one of the stack in `data`, the environment's, or of the stack in the data
    directory. Raises `CONFIG_ERROR`."""
    environment = dict(os.environ)
    own = discover().data_dir / STACK_DIRECTORY
    if data is None and tokens is None and not environment.keys() & set(VARIABLES) and (own / DEPLOYMENT_NAME).exists():
        data = own
    if data is not None:
        environment = _without_places(environment) | dict(read_deployment(data))
    if tokens is not None:
        environment = _without_places(environment) | {FILE_VARIABLE: tokens}
    if (place := named_place(environment)) is None:
        raise MemoreeError(
            Code.CONFIG_ERROR, "there is no tokens file here: name it by --tokens FILE, or a stack by --data DIR"
        )
    return place


def _without_places(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in VARIABLES}
