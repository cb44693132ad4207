from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from memoree.objects import ObjectStore
from memoree.objects.filesystem import FilesystemStore
from memoree.objects.s3 import S3Settings, S3Store
from stack_support import seaweed_server, seaweedfs, unique_prefix

__all__ = ["prefix", "seaweed_server", "seaweedfs", "stores"]

Stores = Callable[[], AbstractAsyncContextManager[ObjectStore]]


@pytest.fixture(params=["filesystem", pytest.param("s3", marks=pytest.mark.stack)])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Opens a store of each kind, always onto the same objects."""
    if request.param == "filesystem":
        root = tmp_path / "objects"

        @asynccontextmanager
        async def filesystem() -> AsyncIterator[ObjectStore]:
            yield FilesystemStore(root)

        return filesystem
    settings: S3Settings = request.getfixturevalue("seaweedfs")

    @asynccontextmanager
    async def s3() -> AsyncIterator[ObjectStore]:
        async with S3Store(settings) as store:
            yield store

    return s3


@pytest.fixture
def prefix() -> str:
    return unique_prefix()
