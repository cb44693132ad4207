from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .door import AsgiDoor, Door, EmbeddedDoor, HttpDoor, Json, ManualClock
from .protocol import COMPLETE_INPUTS
from .workbench import Specimens, Workbench

EMBEDDED_ONLY_FIXTURES = {"clock", "empty_store"}
"""What only a service in this process can give: control of the clock, and a store nobody else writes to. A backup into
a directory of the test's own is of that kind too."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Against a shared service, leave out the tests of what only one in this process does."""
    if not config.getoption("--door").startswith("http"):
        return
    left_out = [item for item in items if _is_embedded_only(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_embedded_only(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    op = item.callspec.params.get("op") if hasattr(item, "callspec") else None
    return not EMBEDDED_ONLY_FIXTURES.isdisjoint(fixtures) or op == "backup.create"


@pytest.fixture
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    """The service under test."""
    where: str = request.config.getoption("--door")
    opened: EmbeddedDoor | HttpDoor
    if where == "embedded":
        opened = EmbeddedDoor(tmp_path / "store", ManualClock())
    elif where == "asgi":
        opened = AsgiDoor(tmp_path / "store", ManualClock())
    elif where.startswith("http"):
        opened = HttpDoor.from_environment(where.removeprefix("http:") if "://" in where[len("http:") :] else where)
    else:
        raise pytest.UsageError(f"--door: {where!r} is neither 'embedded', 'asgi' nor an http URL")
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def empty_store(door: Door) -> EmbeddedDoor:
    """The door, known to lead to a store that holds nothing and that only this test writes to."""
    assert isinstance(door, EmbeddedDoor)
    return door


@pytest.fixture
def clock(empty_store: EmbeddedDoor) -> ManualClock:
    """The service's own clock."""
    return empty_store.clock


@pytest.fixture
def bench(door: Door) -> Workbench:
    """Short ways to put entities into the store."""
    return Workbench(door)


@pytest.fixture
def specimens(bench: Workbench, tmp_path: Path) -> Specimens:
    """Entities of the default context, by the names that complete inputs use."""
    return Specimens(bench, tmp_path / "backup")


@pytest.fixture
def specimen_inputs(request: pytest.FixtureRequest, specimens: Specimens) -> dict[str, Json]:
    """A complete valid input of the operation under test, over entities that exist."""
    op = request.node.callspec.params["op"]
    return {op: specimens.filled(COMPLETE_INPUTS[op])}
