"""Which epoch a lost head is rebuilt from."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from memoree.replication.head import Head
from memoree.replication.rebuild import rebuild_head

from .memory_store import MemoryStore
from .test_lineage import TENANT, Past, State, many


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(tmp_path)


def rebuilt(past: Past) -> Head:
    return asyncio.run(rebuild_head(past.store, past, TENANT))  # type: ignore[arg-type]


def test_the_newest_epoch_that_restores_is_taken(past: Past) -> None:
    past.reign(1, "birth", (0, 0, 0), many(3), base=0)
    newest = past.reign(2, "takeover", (1, 3, 2), [State(2, 2, 3), State(3, 3, 4)], base=2)
    head = rebuilt(past)
    assert (head.prefix, head.epoch, head.txid, head.commit_seq) == (newest, 2, 2, 3)


def test_a_restore_that_nobody_continued_is_not_taken_for_what_was_acknowledged(past: Past) -> None:
    acknowledged = past.reign(1, "birth", (0, 0, 0), many(3), base=0)
    past.reign(2, "restore", (1, 3, 2), [State(3, 3, 9)], base=3)
    head = rebuilt(past)
    assert (head.prefix, head.epoch, head.commit_seq) == (acknowledged, 2, 2)


def test_a_restore_that_was_continued_or_is_all_there_is_is_taken(past: Past) -> None:
    past.reign(1, "birth", (0, 0, 0), many(3), base=0)
    past.reign(2, "restore", (1, 3, 2), [State(3, 3, 9)], base=3)
    newest = past.reign(3, "takeover", (2, 1, 3), [State(3, 3, 10)], base=3)
    assert rebuilt(past).prefix == newest

    past.store = MemoryStore()
    only = past.reign(1, "restore", (0, 0, 0), [State(3, 3, 9)], base=3)
    assert rebuilt(past).prefix == only
