from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from stack_support import seaweedfs  # noqa: F401 - a fixture

from faults.site import FrozenStore, Site
from memoree.objects.s3 import S3Settings


@pytest.fixture
def make_site(tmp_path: Path, seaweedfs: S3Settings) -> Callable[..., Site]:  # noqa: F811 - the fixture
    def make(**overrides: Any) -> Site:
        return Site(tmp_path, seaweedfs, overrides)

    return make


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()
