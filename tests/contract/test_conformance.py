"""The page of conformance tells the truth: what is required has a test, and what a test names exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import Row, Table, problems, read_table, render, tables

ROWS = (
    Row("machine-1", "required", "a rule"),
    Row("machine-2", "later", "another", amended_by="a ruling", note="half of it"),
)
TABLE = Table("A contract", ROWS)


def test_the_committed_tables_are_complete() -> None:
    assert {table.rows[0].key.partition("-")[0]: len(table.rows) for table in tables()} == {
        "machine": 219,
        "retrieval": 95,
        "memoryprotocol": 104,
        "okf": 114,
        "operations": 88,
        "isolation": 12,
        "tokens": 14,
        "fault": 64,
    }
    assert all(row.gist for table in tables() for row in table.rows)


def test_a_required_row_without_a_test_is_a_problem() -> None:
    assert problems([TABLE], {"machine-1": {"tests/t.py::test_x"}}) == []
    (problem,) = problems([TABLE], {"machine-2": {"tests/t.py::test_x"}})
    assert "machine-1 is required" in problem


def test_a_marker_that_names_no_row_is_a_problem() -> None:
    tests = {"machine-1": {"tests/t.py::test_x"}, "machine-220": {"tests/t.py::test_y"}, "other-7": {"tests/t.py::z"}}
    (problem,) = problems([TABLE], tests)
    assert problem.startswith("machine-220 is named by tests/t.py::test_y")


def test_the_page_lists_every_row_with_its_state_and_tests() -> None:
    page = render([TABLE], {"machine-1": {f"tests/t.py::test_{n}" for n in range(6)}}, {})
    assert "1 of 2 rows have tests." in page
    assert "| # | assertion | state | tests |\n|---|---|---|---|\n" in page
    assert "| machine-1 | a rule | required | `t.py::test_0`<br>`t.py::test_1`" in page
    assert "and 2 more" in page
    assert "| machine-2 | another | not built yet; amended (a ruling); half of it |  |" in page


def test_the_page_names_the_planted_faults_of_a_row() -> None:
    page = render([TABLE], {"machine-1": {"tests/t.py::test_x"}}, {"machine-1": [f"fault-{n}" for n in range(5)]})
    assert "| # | assertion | state | tests | planted faults |\n|---|---|---|---|---|\n" in page
    assert "| `t.py::test_x` | fault-0<br>fault-1<br>fault-2<br>and 2 more |" in page
    assert "half of it |  |  |" in page


@pytest.mark.parametrize("numbers", [[1, 3], [2], [1, 1]])
def test_a_table_with_missing_or_repeated_numbers_is_refused(tmp_path: Path, numbers: list[int]) -> None:
    path = tmp_path / "table.tsv"
    path.write_text("number\tstate\tgist\n" + "".join(f"{number}\tlater\tg\n" for number in numbers))
    with pytest.raises(ValueError, match="numbers"):
        read_table(path, "t", "machine")


def test_a_table_with_an_unknown_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.tsv"
    path.write_text("number\tstate\tgist\n1\tsoon\tg\n")
    with pytest.raises(ValueError, match="soon"):
        read_table(path, "t", "machine")
