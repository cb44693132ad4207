"""The benchmark itself: it runs, its inputs are what they claim to be, and its verdicts are right."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import apsw
import orjson
import pytest

from memoree.assembly import embedded_facts, embedded_service
from memoree.data_directory import DATABASE_NAME
from memoree.retrieval.query import analyze

from . import __main__ as command
from . import data, filling, memories, queries, report, wire
from .bare_sqlite import BareSqlite
from .figures import Figure, Ratio, percentile
from .ratios import hostile
from .ratios.quality import CRANFIELD
from .registry import RATIOS
from .site import Site
from .wire import assert_claim

TESTS = Path(__file__).parents[1]
DOCUMENTATION = TESTS.parent / "docs" / "benchmarks.md"
CLAIMS_COUNTED = 20_000
QUICK_SECONDS_MAX = 600


@pytest.mark.nightly
@pytest.mark.timeout(QUICK_SECONDS_MAX + 10)
def test_a_quick_run_measures_every_ratio(tmp_path: Path) -> None:
    report_path = tmp_path / "bench.json"
    options = ("--quick", "--json", str(report_path), "--dir", str(tmp_path))
    command_line = [sys.executable, "-m", "bench", *options]
    run = subprocess.run(command_line, cwd=TESTS, capture_output=True, text=True, timeout=QUICK_SECONDS_MAX)
    assert run.returncode == 0, run.stderr
    document = orjson.loads(report_path.read_bytes())
    assert list(document) == ["ratios", "absolute", "environment"]
    measured = [ratio for ratio in RATIOS if ratio is not CRANFIELD]
    assert list(document["ratios"]) == [ratio.name for ratio in measured]
    numbers = document["ratios"] | document["absolute"]
    counts = {ratio.name for ratio in measured if ratio.must == 0}
    assert {name: value for name, value in numbers.items() if value <= 0 and name not in counts} == {}
    assert all(ratio.name in run.stdout for ratio in measured)
    assert f"{CRANFIELD.name} is not measured: --cranfield" in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == [report_path.name]


def test_the_documentation_has_every_ratio_with_its_bounds() -> None:
    _, _, ratios = DOCUMENTATION.read_text().partition("\n## The ratios\n")
    rows = [line for line in ratios.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    for ratio in RATIOS:
        (row,) = [row for row in rows if f"`{ratio.name}`" in row]
        sign = "≥" if ratio.higher_is_better else "≤"
        assert row.endswith(f"| {sign} {ratio.must:g} | {sign} {ratio.aim:g} |")


def test_the_committed_queries_are_those_of_the_committed_seed() -> None:
    assert queries.PATH.read_text(encoding="ascii") == queries.generated()


def test_the_committed_questions_are_those_of_the_committed_seed() -> None:
    assert queries.QUESTIONS_PATH.read_text(encoding="ascii") == queries.generated_questions()


def test_the_terms_of_a_reference_query_are_the_words_that_the_product_looks_for() -> None:
    cases = queries.cases(queries.QUERIES_PER_BAND)
    assert len(cases) == 5 * queries.QUERIES_PER_BAND
    for case in cases:
        assert [unit.display for unit in analyze(case.query).units] == list(case.terms)


def test_every_hostile_query_is_one_that_is_answered() -> None:
    for name, query in hostile.hostile_queries().items():
        assert analyze(query).units, name
    sizes = [len(query.encode()) for query in hostile.hostile_queries().values()]
    assert sum(0.95 * hostile.BYTES <= size <= hostile.BYTES for size in sizes) == 3


def test_the_query_words_are_as_frequent_as_their_band_says() -> None:
    claims = Counter(
        word
        for statement in data.statements(CLAIMS_COUNTED)
        for word in set(statement.text.lower().rstrip(".").split())
    )
    lists = queries.queries()
    shares = {
        band: [claims[word] / CLAIMS_COUNTED for query in lists[band] for word in query.split()] for band in lists
    }
    assert {band: len(asked) for band, asked in lists.items()} == dict.fromkeys(queries.BANDS, queries.QUERIES_PER_BAND)
    assert percentile(shares["rare"], 0.5) < 0.0005 < percentile(shares["medium"], 0.5) < 0.01
    assert percentile(shares["common"], 0.5) > 0.01
    assert min(percentile(shares[band], 0.0) for band in lists) > 0


def test_the_bare_loop_stores_what_the_product_stores(tmp_path: Path) -> None:
    bare = BareSqlite(tmp_path)
    with closing(bare):
        sources = filling.put_bare(bare, "bench")
        statements = list(data.statements(250))
        bare.insert([filling.command("bench", assert_claim(each, sources[each.source]))[0] for each in statements])
    assert bare.claims == len(statements)
    recorded, replayed = _rows(tmp_path / "recorded.sqlite3"), _rows(tmp_path / "bare.sqlite3")
    assert len(recorded["claims"]) == len(statements)
    assert recorded == replayed


def _rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every stored table, the postings of the full-text index among them."""
    with closing(apsw.Connection(str(path))) as db:
        tables = db.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' AND name != 'meta'"
        )
        return {str(name): list(db.execute(f"SELECT * FROM {name}")) for (name,) in tables.fetchall()}


def test_a_memory_holds_what_commands_would_have_stored(tmp_path: Path) -> None:
    statements = list(data.statements(1_250))
    bare = BareSqlite(tmp_path)
    with closing(bare):
        sources = filling.put_bare(bare, "bench")
        bare.insert([filling.command("bench", assert_claim(each, sources[each.source]))[0] for each in statements])
    memories.fill(tmp_path / "memory", documents=0, statements=iter(statements[:500]), say=print)
    memories.grow(tmp_path / "memory", tmp_path / "grown", statements=iter(statements[500:]), say=print)
    found = _found_by_retrieval(tmp_path / "grown" / DATABASE_NAME)
    assert found == _found_by_retrieval(tmp_path / "recorded.sqlite3")
    assert [len(rows) for rows in found[:2]] == [len(statements)] * 2


def test_a_filled_memory_is_served_as_any_store(tmp_path: Path) -> None:
    memories.fill(tmp_path / "memory", documents=20, statements=data.statements(20), say=print)
    claim, document = next(data.statements(1)), next(data.documents(1))
    service = embedded_service(tmp_path / "memory", facts=embedded_facts(running=False))
    try:
        by_claim = orjson.loads(service.call_bytes(wire.recall(f'"{claim.text}"')))["result"]
        by_document = orjson.loads(service.call_bytes(wire.recall(" ".join(document.body.split()[:20]))))["result"]
    finally:
        service.close_sync()
    assert [found["statement"] for found in by_claim["claims"]] == [claim.text]
    assert by_claim["claims"][0]["evidence"][0]["excerpt"]
    assert by_document["artifact_refs"][0]["title"] == document.title


def _found_by_retrieval(path: Path) -> list[list[tuple[object, ...]]]:
    """What retrieval reads of a store, but for ids and instants, which are new in each."""
    with closing(apsw.Connection(str(path))) as db:
        return [
            list(db.execute(query))
            for query in (
                "SELECT r.row_id, claim_type, statement, status FROM claim_revisions r JOIN claims c USING (row_id)",
                "SELECT * FROM claim_evidence",
                "SELECT row_id, title, media_type, blob_hash, size_bytes, body FROM artifact_revisions",
                "SELECT row_id, revision_row, ordinal, start_byte, end_byte, text FROM artifact_chunks",
                "SELECT * FROM claim_vocabulary",
                "SELECT * FROM artifact_vocabulary",
                "SELECT * FROM words",
                "SELECT commit_seq FROM meta",
            )
        ]


@pytest.mark.parametrize(
    ("value", "higher_is_better", "verdict"),
    [
        (6.9, False, "aim reached"),
        (7.1, False, "ok"),
        (12.1, False, "MISSED"),
        (12.1, True, "aim reached"),
        (11.9, True, "ok"),
        (6.9, True, "MISSED"),
    ],
)
def test_a_value_is_held_against_must_and_aim(value: float, higher_is_better: bool, verdict: str) -> None:
    must, aim = (7.0, 12.0) if higher_is_better else (12.0, 7.0)
    assert _ratio(must=must, aim=aim, higher_is_better=higher_is_better).verdict(value) == verdict


@pytest.mark.parametrize(("options", "status"), [(("--check",), 1), ((), 0)])
def test_only_check_fails_for_a_missed_must(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], status: int
) -> None:
    async def missed(*_: object) -> dict[Ratio, Figure]:
        return {_ratio(must=2.0, aim=1.0): Figure(measured=9.0, floor=3.0)}

    monkeypatch.setattr(command, "_measure", missed)
    monkeypatch.setattr(report, "QUIET_SECONDS", 0.01)
    assert command.main(options) == status


def _ratio(*, must: float, aim: float, higher_is_better: bool = False) -> Ratio:
    async def measure(_: Site) -> Figure:
        raise AssertionError("not measured here")

    return Ratio("some_ratio", "this", "that", must, aim, measure, higher_is_better)
