from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.site import Site, StoreProcess
from memoree.objects.s3 import S3Settings
from stack_support import seaweedfs  # noqa: F401 - a fixture


@pytest.fixture
def make_site(tmp_path: Path, seaweedfs: S3Settings) -> Callable[..., Site]:  # noqa: F811 - the fixture
    def make(**overrides: Any) -> Site:
        return Site(tmp_path, seaweedfs, overrides)

    return make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


@pytest.fixture
def store_process(seaweedfs: S3Settings) -> Iterator[StoreProcess]:  # noqa: F811 - the fixture
    """To freeze; thawed at the end whatever happened."""
    process = StoreProcess(seaweedfs)
    yield process
    process.thaw()
