from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from http_support import Scripted, Tenants, serving, write_tokens

from memoree.http.app import create_app
from memoree.http.settings import HttpSettings

from .protocol import Protocol

ALL = ["recall", "ingest", "forget", "admin"]
WIDE_OPEN = {"rate_per_second": 100_000, "rate_burst": 100_000}
LONGEST = "t" * 128
TENANTS = ("A", "B", "Tenant", "tenant", LONGEST)
TOKENS: dict[str, Any] = {
    "tok-a": {"tenant": "A", "scopes": ALL},
    "tok-a2": {"tenant": "A", "scopes": ALL},
    "tok-b": {"tenant": "B", "scopes": ALL},
    "tok-in": {"tenant": "A", "scopes": ["ingest"]},
    "tok-read": {"tenant": "A", "scopes": ["recall"]},
    "tok-upper": {"tenant": "Tenant", "scopes": ALL},
    "tok-lower": {"tenant": "tenant", "scopes": ALL},
    "tok-longest": {"tenant": LONGEST, "scopes": ALL},
    **{
        f"tok-odd-{number}": {"tenant": tenant, "scopes": ALL}
        for number, tenant in enumerate(("", "x" * 129, "bad scope", "bad%scope", "a:b"))
    },
}
ODD = [name for name in TOKENS if name.startswith("tok-odd")]

As = Callable[[str | None], Protocol]
OpenProtocol = Callable[..., As]


@pytest.fixture
def open_protocol(tmp_path: Path, stack: ExitStack) -> OpenProtocol:
    """Start a server of the tenants; returns a function from a token to its caller."""

    def start(tokens_file: Path | None = None, **settings: Any) -> As:
        tenants = Tenants(tmp_path, list(TENANTS))
        stack.callback(tenants.close_sync)
        found = tokens_file or write_tokens(tmp_path / "tokens.json", TOKENS)
        app = create_app(tenants, HttpSettings(tokens_file=found, **{**WIDE_OPEN, **settings}))
        base_url = stack.enter_context(serving(app))

        def call_as(token: str | None) -> Protocol:
            client = Protocol(base_url, token)
            stack.callback(client.close)
            return client

        return call_as

    return start


@pytest.fixture
def as_token(open_protocol: OpenProtocol) -> As:
    """With the limiter wide open."""
    return open_protocol()


@pytest.fixture
def a(as_token: As) -> Protocol:
    return as_token("tok-a")


@pytest.fixture
def store_a(tmp_path: Path) -> Path:
    """Of the tenant A."""
    return tmp_path / "tenant-0"


@pytest.fixture
def scripted_protocol(scripted: Scripted, stack: ExitStack) -> Protocol:
    client = Protocol(stack.enter_context(serving(create_app(scripted, HttpSettings()))))
    stack.callback(client.close)
    return client
