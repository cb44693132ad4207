from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()
