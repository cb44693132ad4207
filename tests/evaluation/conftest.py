from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memoree.client.request import Endpoint
from memoree.evaluation.corpus import Corpus, read_corpus
from memoree.evaluation.running import temporary_endpoint

from .mini import write_corpus


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An empty store."""
    with temporary_endpoint() as opened:
        yield opened


@pytest.fixture
def mini(tmp_path: Path) -> Corpus:
    return read_corpus(write_corpus(tmp_path / "mini"))
