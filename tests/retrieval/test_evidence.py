"""Evidence and disputes of an answer: exact words from any depth of a body, read by indexes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memoree import limits
from memoree.database.connection import scalar
from memoree.errors import Code, MemoreeError
from memoree.retrieval.disputes import OPEN_DISPUTES
from memoree.retrieval.evidence import evidence_of

from .store import Json, Store

ALPHABET = "ab \n.é設🦀"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(Path(tmp_path_factory.mktemp("library")) / "store")
    yield store
    store.close()


def asserted(store: Store, *evidence: Json) -> int:
    """The revision row of a new claim."""
    claim: int = store.claim("It is so.", evidence=list(evidence))["revision_commit_seq"]
    return claim


def locator(artifact: Json, *span: int) -> Json:
    place: Json = {"artifact_id": artifact["artifact_id"], "revision_id": artifact["revision_id"]}
    return place | dict(zip(("start_byte", "end_byte"), span, strict=False))


@pytest.mark.parametrize("characters", [700, 40_000], ids=["in the row", "in a blob"])
def test_a_preview_is_the_start_of_the_span_wherever_it_lies(library: Store, characters: int) -> None:
    drawn = random.Random(characters)
    body = "".join(drawn.choice(ALPHABET) for _ in range(characters))
    data = body.encode()
    assert (len(data) > limits.INLINE_BODY_BYTES_MAX) is (characters > 1000)
    artifact = library.artifact("Random", body)
    spans = [sorted(drawn.sample(range(len(data) + 1), 2)) for _ in range(200)]
    spans += [[0, len(data)], [len(data) - 1, len(data)], [0, 1]]
    for start, end in spans:
        row = asserted(library, locator(artifact, start, end))
        (item,) = evidence_of(library.db, [row], excerpt_bytes_max=(bytes_max := drawn.randint(1, 1024)))[row]
        whole = data[start:end].decode(errors="replace")
        shown = whole.encode()[:bytes_max].decode(errors="ignore")
        assert (item.excerpt or "", item.excerpt_truncated) == (shown, shown != whole)


def test_the_evidence_of_many_claims_comes_in_stored_order(library: Store) -> None:
    artifact = library.artifact("Letters", "abcdefgh")
    rows = [asserted(library, *(locator(artifact, n, n + 1) for n in order)) for order in ((3, 1, 2), (), (5, 5))]
    found = evidence_of(library.db, rows, excerpt_bytes_max=10)
    assert [[item.excerpt for item in found.get(row, [])] for row in rows] == [["d", "b", "c"], [], ["f", "f"]]


def test_stored_text_with_a_hole_is_an_integrity_error(library: Store) -> None:
    artifact = library.artifact("Long", "0123456789 " * 3000)
    row = asserted(library, locator(artifact, 4000, 9000))
    middle = scalar(
        library.db,
        "SELECT row_id FROM artifact_chunks WHERE revision_row = ? AND start_byte > 4000 LIMIT 1",
        (artifact["revision_commit_seq"],),
    )
    with library.db:
        library.db.execute("DELETE FROM artifact_chunks WHERE row_id = ?", (middle,))
    with pytest.raises(MemoreeError) as refused:
        evidence_of(library.db, [row], excerpt_bytes_max=1024)
    assert refused.value.code is Code.INTEGRITY_ERROR


def test_disputes_are_found_by_the_claims_and_not_among_all_cases(library: Store) -> None:
    bindings = {"claim_revisions": "[1]", "horizon": "ambient", "workspace_id": "w", "project_id": "p", "task_id": None}
    plan: list[Any] = [row[-1] for row in library.db.execute(f"EXPLAIN QUERY PLAN {OPEN_DISPUTES}", bindings)]
    scanned = [step for step in plan if step.startswith("SCAN")]
    assert {step.split()[1] for step in scanned} <= {"asked", "found", "touching"}
    assert any("open_cases_by_source" in step for step in plan) and any("open_cases_by_target" in step for step in plan)
