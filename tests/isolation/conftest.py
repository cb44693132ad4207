from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from isolation.caller import Callers
from isolation.names import SCOPES, tokens_file
from isolation.serving import serving, write_tokens
from isolation.site import Site
from memoree.http.app import create_app
from memoree.http.logs import JsonFormatter
from memoree.http.settings import HttpSettings

MEMORY = Path("/dev/shm")
BURST = 1_000_000
ODD = (
    *("", ".", "..", "...", "a%", "a%2F", "a/b", "a\\b", "../a", "tenants/a", " a", "a ", "a b", "a\n", "a\0", "a:b"),
    *("\u00e1", "a\u0301", "\u0430", "\uff41", "*", "?", "a*", "x" * 129),
)
"""No tenant's names."""
CLIENTS = ("httpx", "httpcore")
"""The tests' own, who share the process."""


class Lines(logging.Handler):
    """Every line that a process with the finest logs would write."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonFormatter())
        self.addFilter(lambda record: not record.name.startswith(CLIENTS))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def token_of_odd(name: str) -> str:
    return f"tok-odd-{ODD.index(name)}"


@dataclass(repr=False)
class Town:
    """A server of all the tenants, in this process."""

    site: Site
    callers: Callers
    logged: list[str]


@contextmanager
def founded(directory: Path) -> Iterator[Town]:
    lines, root = Lines(), logging.getLogger()
    level = root.level
    root.addHandler(lines)
    root.setLevel(logging.DEBUG)
    site = Site(directory)
    odd = {token_of_odd(name): {"tenant": name, "scopes": SCOPES} for name in ODD}
    settings = HttpSettings(
        tokens_file=write_tokens(directory / "tokens.json", tokens_file() | odd),
        rate_per_second=1,
        rate_burst=BURST,
        metrics_on_main_port=True,
        access_log=True,
    )
    try:
        with site.watch.on_connections(), serving(create_app(site.open, settings)) as url, Callers(url) as callers:
            yield Town(site, callers, lines.lines)
    finally:
        root.removeHandler(lines)
        root.setLevel(level)


@contextmanager
def directory_in_memory() -> Iterator[Path]:
    """Where the machine offers that: fsync is not under test here."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        yield Path(directory)


@pytest.fixture
def town() -> Iterator[Town]:
    with directory_in_memory() as directory, founded(directory) as town:
        yield town


@pytest.fixture(scope="module")
def shared_town() -> Iterator[Town]:
    with directory_in_memory() as directory, founded(directory) as town:
        yield town
