"""The table of planted faults fits today's source and leaves no required assertion out; `scripts/planted` plants it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import CodeType

import pytest

from conformance import REQUIRED, tables

from .table import PACKAGE, SHARED, Fault, by_assertion, read_faults

FAULTS = read_faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_planted_fault_finds_its_text_exactly_once_and_leaves_a_program(fault: Fault) -> None:
    source = _source(fault.file)
    planted = fault.applied(source)
    assert planted != source
    assert _meaning(planted) != _meaning_of_file(fault.file), "it changes nothing but its looks"


@cache
def _source(file: str) -> str:
    return (SHARED / PACKAGE / file).read_text(encoding="utf-8")


@cache
def _meaning_of_file(file: str) -> tuple[object, ...]:
    return _meaning(_source(file))


def _meaning(source: str) -> tuple[object, ...]:
    """The same for two programs that differ in their looks only."""
    return _steps(compile(source, "", "exec", dont_inherit=True))


def _steps(code: CodeType) -> tuple[object, ...]:
    constants = [_steps(each) if isinstance(each, CodeType) else (type(each), each) for each in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_exceptiontable, *constants


NOT_WRITTEN_DOWN_YET = {"okf"}
"""Contracts whose faults were planted by hand while they were built, and whose table is still to be written."""


def test_every_required_assertion_is_broken_by_a_planted_fault() -> None:
    broken = by_assertion(FAULTS)
    *contracts, _ = tables()
    rows = [row for table in contracts for row in table.rows]
    missing = [row.key for row in rows if row.state == REQUIRED and row.key not in broken]
    assert [key for key in missing if key.partition("-")[0] not in NOT_WRITTEN_DOWN_YET] == []


def test_planted_faults_name_assertions_that_exist() -> None:
    known = {row.key for table in tables() for row in table.rows}
    assert [key for fault in FAULTS for key in fault.breaks if key not in known] == []


@pytest.mark.parametrize("source", ["x = 1\n", "y = 1\ny = 1\n"])
def test_a_text_that_is_gone_or_there_twice_is_an_error(source: str, tmp_path: Path) -> None:
    fault = Fault("stale", ("machine-1",), "module.py", "y = 1", "y = 2")
    module = tmp_path / PACKAGE / fault.file
    module.parent.mkdir()
    module.write_text(source)
    with pytest.raises(ValueError, match="stale"):
        fault.plant(tmp_path)
    assert module.read_text() == source


def test_an_id_given_twice_is_refused(tmp_path: Path) -> None:
    entry = "[[fault]]\nid = 'twin'\nbreaks = ['machine-1']\nfile = 'module.py'\nold = 'a'\nnew = 'b'\n"
    (tmp_path / "twins.toml").write_text(entry * 2)
    with pytest.raises(ValueError, match="twin"):
        read_faults(tmp_path)
