from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .door import AsgiDoor, Door, EmbeddedDoor, HttpDoor, ManualClock
from .protocol import complete_inputs
from .workbench import Workbench

EMBEDDED_ONLY_FIXTURES = {"clock", "empty_store"}
"""What only a service in this process can give: control of the clock, and a store nobody else writes to."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Against a shared service, leave out the tests that need a clock or a store of their own."""
    if not config.getoption("--door").startswith("http"):
        return
    left_out = [item for item in items if EMBEDDED_ONLY_FIXTURES & set(getattr(item, "fixturenames", ()))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


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
def specimen_inputs(bench: Workbench) -> dict[str, dict[str, object]]:
    """A complete valid input per operation, over an artifact and a claim that exist."""
    artifact, claim = bench.put(), bench.claim()
    return complete_inputs(
        {
            "artifact_id": artifact["artifact_id"],
            "artifact_revision": artifact["revision_id"],
            "claim_id": claim["claim_id"],
            "claim_revision": claim["revision_id"],
        }
    )
