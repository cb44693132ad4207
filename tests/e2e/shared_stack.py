"""One running stack per test process, which the tests share; every test has a tenant of its own."""

from __future__ import annotations

import pytest

from e2e.deployment import Deployment, deployment

TENANTS = [f"tenant-{number}" for number in range(128)]
API_PROCESSES = 2

_unused = iter(TENANTS)
_running: Deployment | None = None


def fresh_tenant() -> str:
    """A tenant nobody has written to."""
    return next(_unused)


@pytest.fixture
def tenant() -> str:
    return fresh_tenant()


@pytest.fixture
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """A running stack with two api processes, ready. Its children may be killed; its supervisor may not."""
    shared = _shared(request, tmp_path_factory)
    shared.wait_until_ready()
    return shared


def _shared(request: pytest.FixtureRequest, directories: pytest.TempPathFactory) -> Deployment:
    global _running
    if _running is None:
        opened = deployment(directories.mktemp("deployment") / "stack")
        started = opened.__enter__()
        request.session.addfinalizer(lambda: opened.__exit__(None, None, None))
        started.use_tokens(TENANTS)
        started.start("--api-processes", str(API_PROCESSES))
        _running = started
    return _running
