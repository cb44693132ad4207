"""A restored store finds what its source finds, by the same plans (field fault 64)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import orjson
import pytest

from memoree import clock
from memoree.backup.database import copy_database
from memoree.database import meta
from memoree.database.connection import open_reader
from memoree.operations.execute import run_read
from memoree.operations.view import View
from memoree.replication.litestream import Litestream, ReplicaTarget, restore
from mixed_mutations import mixed_mutations
from operations.bench import FACTS, Bench, Json

from .conftest import QUICK

QUERIES = ("celadon glaze", "cone 6", "stoped at cone", "薬ノ", "biscuit temperature", "glazing recipes 0017", "bisque")
"""Exact and misspelled words, a piece of a longer run, an anchor, an inflection, an identifier."""
ASKED: Mapping[str, Json] = {
    "search": {"limit": 10, "include_historical": True},
    "memory.recall": {},
    "memory.probe": {},
    "memory.retrieve": {},
    "context.build": {"max_bytes": 4096},
}


class Source:
    """A store that has a row of every kind, projections and an anchor among them."""

    def __init__(self, directory: Path) -> None:
        self.bench = Bench(directory)
        self.path = directory / "store.sqlite3"
        names = mixed_mutations(self.bench.write)
        recipes, reached = names["recipes"], names["reached"]
        anchor = {name: recipes[name] for name in ("artifact_id", "revision_id")}
        anchor |= {"kind": "retrieval_anchor", "projection_key": "anchor", "text": "biscuit temperature"}
        anchor |= {"generator": "anchorer", "generator_version": "1", "generator_digest": "sha256:00ff"}
        anchor |= {"evidence_spans": [{"start_byte": 0, "end_byte": 12}], "metadata": {"claim_id": reached["claim_id"]}}
        self.bench.write("projection.put", anchor)

    def asked(self, path: Path) -> tuple[list[bytes], dict[str, list[str]]]:
        """What a database answers, and the plan of every statement that it took."""
        with closing(open_reader(path, immutable=False)) as db:
            statements: dict[str, Any] = {}

            def note(_: apsw.Cursor, sql: str, bindings: Any) -> bool:
                if sql.lstrip().startswith(("SELECT", "WITH")):
                    statements[sql] = bindings
                return True

            view = View(db, self.bench.blobs, FACTS, meta.read(db), clock.stored(self.bench.clock()))
            db.exec_trace = note
            answers = [
                orjson.dumps(run_read(view, self.bench.request(op, {"query": query, **input})))
                for op, input in ASKED.items()
                for query in QUERIES
            ]
            db.exec_trace = None
            return answers, {
                sql: [step[3] for step in db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
                for sql, bindings in statements.items()
            }


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    (tmp_path / "source").mkdir()
    source = Source(tmp_path / "source")
    yield source
    source.bench.close()


def from_a_replica(path: Path, restored: Path) -> None:
    async def run() -> None:
        target = ReplicaTarget((restored.parent / "replica").as_uri())
        litestream = Litestream(path, target, QUICK)
        await litestream.start()
        try:
            await restore(target, (await litestream.sync()).replicated_txid, restored)
        finally:
            await litestream.kill()

    asyncio.run(run())


@pytest.mark.fault_class(64)
@pytest.mark.parametrize("copied", [copy_database, from_a_replica], ids=["from a backup", "from a replica"])
def test_a_restored_store_recalls_the_same_by_the_same_plans(
    source: Source, tmp_path: Path, copied: Callable[[Path, Path], None]
) -> None:
    copied(source.path, tmp_path / "restored.sqlite3")
    answers, plans = source.asked(source.path)
    assert sum(b"citation" in answer for answer in answers) > len(answers) / 2, "most of it is there"
    assert any("active_anchors" in step for plan in plans.values() for step in plan)
    assert source.asked(tmp_path / "restored.sqlite3") == (answers, plans)
