from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from http_support import Caller, Scripted, Tenants, local_store, serving, write_tokens

from memoree.embedded import EmbeddedService
from memoree.http.app import create_app
from memoree.http.settings import HttpSettings

ALL = ["recall", "ingest", "forget", "inbox", "admin"]
TOKENS: dict[str, Any] = {
    "tok-a": {"tenant": "A", "scopes": ALL},
    "tok-a2": {"tenant": "A", "scopes": ALL},
    "tok-b": {"tenant": "B", "scopes": ALL},
    "tok-in": {"tenant": "A", "scopes": ["ingest"]},
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def store(tmp_path: Path, stack: ExitStack) -> EmbeddedService:
    service = local_store(tmp_path)
    stack.callback(service.close_sync)
    return service


@pytest.fixture
def caller(store: EmbeddedService, stack: ExitStack) -> Caller:
    """The embedded store behind HTTP without tokens."""
    client = Caller(stack.enter_context(serving(create_app(store, HttpSettings()))))
    stack.callback(client.close)
    return client


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def scripted_caller(scripted: Scripted, stack: ExitStack) -> Caller:
    client = Caller(stack.enter_context(serving(create_app(scripted, HttpSettings()))))
    stack.callback(client.close)
    return client


@pytest.fixture
def tokens_file(tmp_path: Path) -> Path:
    return write_tokens(tmp_path / "tokens.json", TOKENS)


OpenTenants = Callable[..., Callable[[str | None], Caller]]


@pytest.fixture
def open_tenants(tmp_path: Path, tokens_file: Path, stack: ExitStack) -> OpenTenants:
    """Start a server of several tenants; returns a function from a token to its caller."""

    def start(names: tuple[str, ...] = ("A", "B"), **settings: Any) -> Callable[[str | None], Caller]:
        tenants = Tenants(tmp_path, list(names))
        stack.callback(tenants.close_sync)
        base_url = stack.enter_context(serving(create_app(tenants, HttpSettings(tokens_file=tokens_file, **settings))))

        def call_as(token: str | None) -> Caller:
            client = Caller(base_url, token)
            stack.callback(client.close)
            return client

        return call_as

    return start
