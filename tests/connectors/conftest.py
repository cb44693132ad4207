from __future__ import annotations

from pathlib import Path

import pytest

from connectors.support import Runs
from stack_support import seaweedfs

__all__ = ["runs", "seaweedfs"]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "state" / "docs.sqlite3")
