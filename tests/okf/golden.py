"""The golden bundle of the OKF contract and the reference program's answers over it: tests that need them are skipped
where the design papers do not lie beside the checkout."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import pytest

from memoree.okf import dates, files, ranking
from memoree.okf.dialect import Dialect
from memoree.okf.hygiene import Activity
from memoree.okf.node import Node

VECTORS = Path(__file__).parents[3] / "shared" / "spec" / "okf-vectors"
BUNDLE = VECTORS / "bundle"

needs_golden = pytest.mark.skipif(not VECTORS.is_dir(), reason="the golden bundle is not beside the checkout")


@cache
def expected() -> dict[str, Any]:
    """The reference program's answers; empty without the papers, so that tests can be collected."""
    if not VECTORS.is_dir():
        return {}
    found: dict[str, Any] = json.loads((VECTORS / "expected.json").read_text(encoding="utf-8"))
    return found


def vectors(family: str) -> list[Any]:
    found: list[Any] = expected().get(family, [])
    return found


def as_of_ms() -> int:
    found = dates.milliseconds(expected()["as_of"])
    assert found is not None
    return found


@cache
def loaded(dialect: Dialect) -> tuple[apsw.Connection, dict[str, Node]]:
    """The tables of the golden bundle, and its nodes by id."""
    db, nodes = files.load(BUNDLE, dialect)
    return db, {node.id: node for node in nodes.values()}


def activity(topic: str) -> Activity | None:
    """Of the golden ledger, read without the code under test."""
    instants = []
    for line in (BUNDLE / "ledger" / "events.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue
        if event["topic"] == topic:
            instants.append(dates.milliseconds(event["ts"]))
    known = [instant for instant in instants if instant is not None]
    return Activity(len(known), max(known)) if known else None


def search(query: ranking.Query, dialect: Dialect = Dialect.COMPAT) -> ranking.Answer:
    return corpus(query, dialect).search()


def corpus(query: ranking.Query, dialect: Dialect = Dialect.COMPAT) -> ranking.Corpus:
    return ranking.Corpus(loaded(dialect)[0], files.BUNDLE, activity, query)
