"""`memoree eval`: a run over a corpus, its exit status and its forms."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from evaluation.mini import CASES, SEEDS, artifact, case, write_corpus
from memoree.evaluation.corpus import bundled, read_corpus

from .conftest import PROGRAM, Run, Shell
from .screen import on_terminal
from .test_serve import serving

UNANSWERED = case(
    "rain", "lexical", "rain over the harbour", "artifacts_only", artifacts=["a-log"], negatives=["a-fan"]
)


@pytest.fixture
def mini(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "mini")


def test_a_corpus_that_holds_ends_with_zero_and_an_envelope(inside: Callable[..., Run], mini: Path) -> None:
    run = inside("eval", "--corpus", str(mini))
    assert run.result["bounds_held"] is True
    assert run.result["failed"] == []
    assert run.result["classes"]["all"]["cases"] == len(CASES)


def test_a_missed_bound_ends_with_one_and_says_what_came_back(inside: Callable[..., Run], tmp_path: Path) -> None:
    asked = case("fans", "honest_none", "blades of the extractor fan", "none")
    corpus = write_corpus(tmp_path / "missed", SEEDS, [asked, UNANSWERED])
    run = inside("eval", "--corpus", str(corpus))
    assert run.status == 1
    assert run.envelope["ok"]
    found = run.envelope["result"]
    assert found["bounds_held"] is False
    assert [bound["name"] for bound in found["bounds"] if bound["verdict"] == "MISSED"] == ["false answers"]
    answered, silent = found["failed"]
    assert answered["returned"]["artifacts"][0] == "a-fan"
    assert answered["standings"][0]["qualified"] is True
    assert silent["faults"] == ["presence none, expected artifacts_only", "missing a-log"]


def test_a_selection_and_a_copy_of_the_document(inside: Callable[..., Run], mini: Path, tmp_path: Path) -> None:
    copy = tmp_path / "document.json"
    run = inside("eval", "--corpus", str(mini), "--case", "fan", "--class", "conflict", "--output", str(copy))
    assert list(run.result["classes"]) == ["long_document", "conflict", "all"]
    assert json.loads(copy.read_bytes()) == run.result


@pytest.mark.parametrize(
    "line", [("--case", "nobody"), ("--class", "none"), ("--corpus", "."), ("--cranfield", ".")], ids=" ".join
)
def test_what_is_not_there_is_refused(inside: Callable[..., Run], mini: Path, line: tuple[str, str]) -> None:
    inside("eval", "--corpus", str(mini), *line).refused("INVALID_REQUEST", 2)


def test_the_server_of_the_environment_is_left_alone(
    inside: Callable[..., Run], mini: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMOREE_ENDPOINT", "http://127.0.0.1:9")
    assert inside("eval", "--corpus", str(mini)).result["bounds_held"]
    inside("eval", "--corpus", str(mini), "--endpoint", "http://127.0.0.1:9").refused("TRANSPORT_ERROR", 1)


def test_a_running_server_is_evaluated_through_its_door(project: Shell, mini: Path) -> None:
    """And twice: what is stored already is not stored again."""
    with serving(project) as address:
        for _ in range(2):
            assert project.run("eval", "--corpus", mini, "--endpoint", f"http://{address}").result["bounds_held"]


def test_people_get_tables_and_the_cases_that_do_not_hold(shell: Shell, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "shown", [*SEEDS, artifact("a-rain", "Rain", "Drizzle.")], [*CASES, UNANSWERED])
    line = [PROGRAM, "eval", "--corpus", corpus]
    status, shown = on_terminal(line, cwd=shell.cwd, environment=shell.environment)
    assert status == 0
    rows = [row.split() for row in shown.splitlines()]
    assert ["conflict", "1", "0", "1.000", "1.000", "0", "0"] in rows
    assert ["false", "answers", "0", "0", "0", "aim", "reached"] in rows
    assert "rain  rain over the harbour" in shown
    assert "presence none, expected artifacts_only" in shown
    assert "1 of 5 cases do not hold" in shown


def test_the_corpus_comes_with_the_program(inside: Callable[..., Run]) -> None:
    chosen = read_corpus(bundled()).cases[0]
    assert inside("eval", "--case", chosen.id).envelope["result"]["classes"][chosen.name]["cases"] == 1
