"""`memoree retrieve` and `memoree probe`, piped and on a terminal."""

from __future__ import annotations

import pytest

from .conftest import PROGRAM, Shell
from .screen import on_terminal

NEAR = ["celadon", "kaolin", "feldspar"]
"""Of three words one is stored."""


@pytest.fixture
def filled(project: Shell) -> tuple[Shell, str]:
    """A project with one claim, and what it cites."""
    note = project.run("artifact", "put", "-", "--title", "Glazes", stdin=b"celadon is a green glaze").result
    evidence = f"{note['artifact_id']}@{note['revision_id']}#0-7"
    project.run("claim", "assert", "fact", "The glaze is celadon.", "--evidence", evidence)
    return project, f"memoree://artifact/{evidence}"


def test_retrieve_answers_or_recovers(filled: tuple[Shell, str]) -> None:
    project, evidence = filled
    found = project.run("retrieve", "celadon", "glaze", "--profile", "--no-recency").result
    assert found["presence"] == "claims" and "recovery" not in found
    assert found["profile"]["qualified_claim_count"] == 1
    near = project.run("retrieve", *NEAR, "--max-recovery-bytes", "4").result
    assert near["presence"] == "none" and "profile" not in near
    assert near["recovery"]["evidence"] == []
    assert near["recovery"]["suppressed_references"] == 1
    whole = project.run("retrieve", *NEAR, "--reformulation", "celadon recipe").result
    assert [item["citation"] for item in whole["recovery"]["evidence"]] == [evidence]
    project.run("retrieve", "x", "--reformulation", "x").refused("INVALID_REQUEST", 2)
    project.run("retrieve", "x", "--max-recovery-leads", "9").refused("INVALID_REQUEST", 2)
    project.run("retrieve", "x", "--min-commit-seq", "9").refused("INDEX_NOT_READY", 6)
    project.run("retrieve", "x", "--horizon", "personal").refused("INVALID_REQUEST", 2)


def test_probe_points(filled: tuple[Shell, str]) -> None:
    project, _ = filled
    found = project.run("probe", *NEAR, "--original-query", "which glaze", "--max-leads", "2").result
    assert (found["original_query"], found["probe_query"]) == ("which glaze", "celadon kaolin feldspar")
    assert len(found["leads"]) == 1
    project.run("probe", "x", "--max-leads", "9").refused("INVALID_REQUEST", 2)
    project.run("probe", "x", "--min-commit-seq", "9").refused("INDEX_NOT_READY", 6)
    assert project.run("probe", "celadon", "--horizon", "personal", "--reason", "why").result["leads"] == []


def test_a_terminal_shows_titles_words_and_where_they_stand(filled: tuple[Shell, str]) -> None:
    project, evidence = filled

    def screen(*line: str) -> list[str]:
        status, output = on_terminal([PROGRAM, *line], cwd=project.cwd, environment=project.environment, columns=80)
        assert status == 0
        return [text.rstrip() for text in output.rstrip("\n").split("\n")]

    assert screen("probe", *NEAR)[:2] == ["Glazes", f"  {evidence}"]
    near = screen("retrieve", *NEAR)
    assert near[:3] == ["Glazes  no answer", "  celadon", f"  {evidence}"]
    assert "ask again" in " ".join(near[3:])
    assert screen("retrieve", "celadon", "glaze")[0] == "The glaze is celadon.  fact, current"
    assert screen("retrieve", "tenmoku")[0] == "nothing found"
    assert screen("probe", "tenmoku") == ["nothing found"]
