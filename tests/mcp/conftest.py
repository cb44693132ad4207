from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_support import Model, Shell, local_model

from e2e.shared_stack import stack, tenant

__all__ = ["stack", "tenant"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Only seen where this folder is named on the command line."""
    parser.addoption("--write-tools", action="store_true", help="write tests/mcp/tools.json again")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def shell(data_dir: Path) -> Shell:
    return Shell(data_dir)


@pytest.fixture
def model(data_dir: Path) -> Iterator[Model]:
    """On a store of the test's own."""
    with local_model(data_dir) as opened:
        yield opened


@pytest.fixture(scope="module")
def idle_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """One session on an empty store, for tests that write nothing."""
    with local_model(tmp_path_factory.mktemp("empty")) as opened:
        yield opened
