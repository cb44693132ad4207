from __future__ import annotations

import pytest

from stack_support import seaweedfs, unique_prefix

__all__ = ["prefix", "seaweedfs"]


@pytest.fixture
def prefix() -> str:
    return unique_prefix()
