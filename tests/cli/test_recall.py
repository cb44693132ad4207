"""`memoree recall`, piped and on a terminal."""

from __future__ import annotations

from .conftest import PROGRAM, Shell
from .screen import on_terminal


def test_recall_tells_claims_artifacts_and_on_request_what_is_near(project: Shell) -> None:
    note = project.run("artifact", "put", "-", "--title", "Glazes", stdin=b"celadon is a green glaze").result
    evidence = f"{note['artifact_id']}@{note['revision_id']}#0-7"
    claim = project.run("claim", "assert", "fact", "The glaze is celadon.", "--evidence", evidence).result
    found = project.run("recall", "celadon", "glaze", "--max-excerpt-bytes", "5", "--no-recency").result
    assert found["presence"] == "claims" and found["query"] == "celadon glaze"
    assert [answer["claim_id"] for answer in found["claims"]] == [claim["claim_id"]]
    assert found["claims"][0]["evidence"][0]["excerpt"] == "celad"
    assert "bounded_recency_v1" not in found["claims"][0]["matched_by"]
    near = ["recall", "celadon", "kaolin", "feldspar"]
    assert project.run(*near).result["candidate_claims"] == []
    shown = project.run(*near, "--max-candidate-claims", "1", "--max-candidate-artifact-refs", "1").result
    assert (len(shown["candidate_claims"]), len(shown["candidate_artifact_refs"])) == (1, 1)
    project.run("recall", "x", "--max-claims", "11").refused("INVALID_REQUEST", 2)
    project.run("recall", "x", "--min-commit-seq", "9").refused("INDEX_NOT_READY", 6)
    project.run("recall", "x", "--horizon", "personal").refused("INVALID_REQUEST", 2)


def test_a_terminal_shows_what_is_said_how_it_is_and_where_it_stands(project: Shell) -> None:
    note = project.run("artifact", "put", "-", "--title", "Glazes", stdin=b"celadon is a green glaze").result
    evidence = f"{note['artifact_id']}@{note['revision_id']}#0-7"
    claim = project.run("claim", "assert", "fact", "The glaze is celadon.", "--evidence", evidence).result

    def screen(*line: str) -> list[str]:
        status, output = on_terminal([PROGRAM, *line], cwd=project.cwd, environment=project.environment, columns=80)
        assert status == 0
        return [text.rstrip() for text in output.rstrip("\n").split("\n")]

    assert screen("recall", "celadon", "glaze") == [
        "The glaze is celadon.  fact, current",
        f"  memoree://claim/{claim['claim_id']}@{claim['revision_id']}",
        f"  memoree://artifact/{evidence}",
        "Glazes  active",
        "  celadon is a green glaze",
        f"  memoree://artifact/{note['artifact_id']}@{note['revision_id']}#0-24",
    ]
    assert screen("recall", "tenmoku") == ["nothing found"]
    near = screen("recall", "celadon", "kaolin", "feldspar", "--max-candidate-claims", "1")
    assert near[0] == "The glaze is celadon.  fact, no answer" and "candidates_hint" in near[2]
