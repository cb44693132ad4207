"""What the readable commands print on a terminal: short, with ids in one piece, and harmless."""

from __future__ import annotations

import json
import re

import pytest

from .conftest import CONTEXT, PROGRAM, Json, Shell
from .screen import on_terminal as screen_of


def on_terminal(shell: Shell, *arguments: str, columns: int = 120) -> tuple[int, str]:
    return screen_of([PROGRAM, *arguments], cwd=shell.cwd, environment=shell.environment, columns=columns)


def test_a_terminal_gets_a_table_and_json_on_request(project: Shell) -> None:
    assert project.run("claim", "assert", "fact", "The glaze is celadon.").result
    status, table = on_terminal(project, "search", "celadon")
    assert status == 0
    assert "The glaze is celadon." in table and '"ok"' not in table
    status, asked = on_terminal(project, "search", "celadon", "--json")
    assert json.loads(asked)["ok"]
    status, failed = on_terminal(project, "claim", "get", "clm_missing")
    assert status == 3 and "NOT_FOUND" in failed and '"ok"' not in failed


def test_ids_and_citations_stay_in_one_piece_on_a_narrow_terminal(project: Shell) -> None:
    artifact = project.run("artifact", "put", "-", "--title", "A firing " * 20, stdin=b"celadon glaze").result
    citation = project.run("search", "celadon").result["hits"][0]["citation"]
    assert len(citation) > 80
    assert citation in on_terminal(project, "search", "celadon", columns=80)[1].splitlines()[-1]
    history = on_terminal(project, "artifact", "history", artifact["artifact_id"], columns=80)[1]
    assert artifact["revision_id"] in history


def test_stored_text_cannot_command_the_terminal(project: Shell) -> None:
    hostile: Json = {"type": "text", "data": "harmless\x1b]0;owned\x07\x9b2J\r overwritten \u202e"}
    given = {"kind": "log", "title": "t\x1b[2J", "content": hostile}
    artifact = project.call("artifact.put", given, idempotency_key="k").result["artifact_id"]
    for command in (["artifact", "get", artifact], ["artifact", "history", artifact], ["search", "harmless"]):
        status, output = on_terminal(project, *command)
        assert status == 0
        assert not set("\x1b\x07\x9b\u202e") & set(output)
    assert "\\x1b]0;owned" in on_terminal(project, "artifact", "get", artifact)[1]


RAW_JSON = re.compile(r'[{}]|\["|":')


def screen(shell: Shell, *line: str) -> list[str]:
    """The lines of a success on a terminal of 80 columns."""
    status, output = on_terminal(shell, *line, columns=80)
    assert status == 0, output
    return [line.rstrip() for line in output.rstrip("\n").split("\n")]


def unfolded(lines: list[str]) -> str:
    """The lines as one, wherever the terminal broke them."""
    return " ".join(line.strip() for line in lines)


def test_an_artifact_is_shown_by_what_it_says_its_state_and_its_id(project: Shell) -> None:
    made = project.run("artifact", "put", "-", "--title", "Firing 12", stdin=b"cone 6\nreached").result
    name, revision = made["artifact_id"], made["revision_id"]
    lines = screen(project, "artifact", "get", name)
    assert lines[:2] == ["Firing 12  active", f"  {name}@{revision}"]
    assert lines[-3:] == ["", "cone 6", "reached"]
    assert len(lines) <= 8 and not RAW_JSON.search("".join(lines))
    assert "" not in screen(project, "artifact", "get", name, "--metadata-only")
    note = project.cwd / "note.md"
    note.write_text("cone 5")
    lines = screen(project.having(MEMOREE_ACTOR="potter"), "artifact", "put", str(note), "--title", "Note")
    assert lines[0] == "Note  active" and "commit 2" in unfolded(lines) and "by potter" in unfolded(lines)
    lines = screen(project, "artifact", "revise", name, str(note), "--if-revision", revision)
    assert lines[0] == "Firing 12  active" and "revision 2" in unfolded(lines)
    lines = screen(project, "artifact", "get", name, "--output", str(project.cwd / "out"))
    assert lines[-1] == f"  written to {project.cwd / 'out'}"
    lines = screen(project, "artifact", "forget", name, "--reason", "dropped")
    assert lines[0] == "Firing 12  forgotten" and "  forgotten: dropped" in lines


def test_a_claim_is_shown_with_its_evidence_in_one_piece(project: Shell) -> None:
    artifact = project.run("artifact", "put", "-", stdin=b"cone 6").result
    evidence = f"{artifact['artifact_id']}@{artifact['revision_id']}#0-4"
    line = ["claim", "assert", "fact", "It reached cone 6.", "--evidence", evidence, "--confidence", "0.8"]
    lines = screen(project, *line, "--valid-until", "2036-03-02T20:40:00Z")
    assert lines[0] == "It reached cone 6.  active"
    assert lines[1].startswith("  clm_") and "@crev_" in lines[1]
    assert lines[-1] == f"  memoree://artifact/{evidence}"
    told = unfolded(lines)
    assert "confidence 0.8" in told and "valid until 2036-03-02T20:40:00Z" in told
    claim = lines[1].strip().partition("@")[0]
    lines = screen(project, "claim", "retract", claim, "--reason", "misread")
    assert lines[0] == "It reached cone 6.  retracted" and "  retracted: misread" in lines


def test_a_citation_is_shown_above_its_bytes(project: Shell) -> None:
    artifact = project.run("artifact", "put", "-", stdin="漢字\nnext".encode()).result
    name = f"memoree://artifact/{artifact['artifact_id']}@{artifact['revision_id']}"
    lines = screen(project, "citation", "get", f"{name}#0-11", "--max-bytes", "8")
    assert lines[0] == f"{name}#0-8"
    assert lines[-4:] == ["", "漢字", "n", "cut: 3 more bytes were asked for"]


def test_a_context_is_shown_as_the_markdown_that_goes_into_a_prompt(project: Shell) -> None:
    assert project.run("claim", "assert", "fact", "The glaze is celadon.").result
    markdown = project.run("context", "build", "celadon").result["rendered_markdown"]
    shown = screen(project, "context", "build", "celadon")
    assert "> The glaze is celadon." in shown and "# Retrieved memory" in shown
    assert unfolded(shown).split() == markdown.split()
    assert "1 more did not fit into 300 bytes" in unfolded(
        screen(project, "context", "build", "celadon", "--max-bytes", "300")
    )


def test_relations_and_conflicts_are_shown_from_their_ends(project: Shell) -> None:
    first, second = (project.run("claim", "assert", "fact", f"It was cone {cone}.").result for cone in (5, 6))
    ends = [f"claim:{claim['claim_id']}" for claim in (first, second)]
    lines = screen(project, "link", ends[0], "contradicts", ends[1])
    assert [line.strip() for line in lines[:3]] == [ends[0], "contradicts", ends[1]]
    assert lines[3].startswith("  rel_") and "commit 3" in unfolded(lines[3:])
    assert screen(project, "relation", "list", ends[0])[0] == f"→ contradicts  {ends[1]}"
    assert screen(project, "relation", "list", ends[1], "--limit", "1")[0] == f"← contradicts  {ends[0]}"
    lines = screen(project, "claim", "get", first["claim_id"])
    assert lines[0] == "It was cone 5.  conflicted"
    assert f"`memoree relation list {ends[0]} --relation contradicts`" in unfolded(lines)
    lines = screen(project, "conflict", "list")
    assert lines[0] == "case 1  open"
    assert lines[1:5:2] == ["  It was cone 5.  conflicted", "  It was cone 6.  conflicted"]
    assert lines[2] == f"  {first['claim_id']}@{first['revision_id']}"
    project.run("claim", "revise", first["claim_id"], "It was 5.5.", "--if-revision", first["revision_id"])
    lines = screen(project, "conflict", "list", "--include-stale", "--limit", "2")
    assert lines[0] == "case 2  open" and "case 1  stale" in lines and "  now: It was 5.5." in lines
    assert screen(project, "relation", "list", ends[0], "--relation", "supports")[0] == "nothing found"


def test_sources_items_and_projections_are_shown_by_name_and_state(project: Shell) -> None:
    lines = screen(project, "source", "register", "Studio wiki", "--kind", "wiki", "--metadata", '{"a":{"b":1}}')
    assert lines[0] == "Studio wiki  unknown" and lines[1].startswith("  src_")
    source = lines[1].strip()
    item = ["--external-id", "page-4", "--external-revision", "v9", "--cursor", "c-1"]
    page = project.cwd / "page.md"
    page.write_text("Celadon: 2% iron")
    lines = screen(project, "source", "ingest", source, str(page), *item)
    assert lines[0] == "page-4 at v9  live"
    assert "page-4  active" in lines and "Studio wiki  healthy" in lines and "cursor c-1" in unfolded(lines)
    page.write_text("Celadon: 3% iron")
    lines = screen(project, "source", "ingest", source, str(page), *item[:3], "v10")
    assert lines[:2] == ["page-4 at v10  live", "  commit 3"] and "revision 2" in unfolded(lines)
    assert not RAW_JSON.search("".join(lines))
    artifact, revision = next(line for line in lines if line.startswith("  art_")).strip().split("@")
    told = ["--projection-key", "summary", "--kind", "alias", "--generator", "g", "--generator-version", "1"]
    told += ["--generator-digest", "d", "--metadata", '{"a":1}', "--span", "0-7", "--span", "9-11"]
    lines = screen(project, "projection", "put", artifact, "green glaze", "--revision", revision, *told)
    assert lines[0] == "green glaze  active" and lines[1].startswith("  proj_")
    assert "bytes 0-7 9-11" in unfolded(lines) and not RAW_JSON.search("".join(lines))
    projection = lines[1].strip()
    assert "  dropped: wrong" in screen(project, "projection", "drop", projection, "--reason", "wrong")
    assert screen(project, "projection", "list", artifact)[0] == "green glaze  dropped"
    lines = screen(project, "source", "checkpoint", source, "--health", "error", "--message", "401")
    assert lines[0] == "Studio wiki  error" and lines[-1] == "  401"
    assert screen(project, "source", "withdraw", source, "page-4", "--reason", "gone")[0] == "page-4 at v10  withdrawn"


def test_feedback_is_shown_by_query_or_fingerprint(project: Shell) -> None:
    record = ["feedback", "record", "which", "cone", "--note", "why", "--citation", "memoree://claim/c@r"]
    made = project.run(*record, "--outcome", "miss").result
    lines = screen(project, "feedback", "get", made["feedback_id"])
    assert lines[0] == f"query {made['query_fingerprint'][:12]}…  miss"
    assert lines[1].startswith(f"  {made['feedback_id']}") and lines[-2:] == ["  why", "  memoree://claim/c@r"]
    assert screen(project, *record, "--outcome", "stale", "--retain-query")[0] == "which cone  stale"
    lines = screen(project, "feedback", "list", "--limit", "1")
    assert lines[0] == "which cone  stale" and lines[-1] == "next_before_commit_seq: 2"
    assert screen(project, "feedback", "export")[0] == "which cone  stale"
    keyed = [*record, "--outcome", "miss", "--idempotency-key", "k"]
    assert "created" not in unfolded(screen(project, *keyed))
    assert "commit 3, created: no" in unfolded(screen(project, *keyed))


@pytest.mark.parametrize("line", ["capabilities", "doctor", "context show", "context explain", "verify"])
def test_what_is_left_is_one_line_per_member_without_raw_json(project: Shell, line: str) -> None:
    assert project.run("claim", "assert", "fact", "x").result
    nested = project.having(MEMOREE_CONTEXT=json.dumps(CONTEXT | {"pins": ["art_1", "art_2"]}))
    lines = screen(nested, *line.split())
    assert lines and not RAW_JSON.search("".join(lines))


def test_a_damaged_store_is_shown_with_what_was_found(project: Shell) -> None:
    stored = project.run("artifact", "put", "-", stdin=b"x" * 20_000).result
    assert screen(project, "verify")[0] == "the store is sound"
    (blob,) = (path for path in project.home.rglob(stored["blob_hash"]) if path.is_file())
    blob.chmod(0o600)
    blob.write_bytes(b"y" * 20_000)
    lines = screen(project, "verify")
    assert lines[0] == "the store is damaged" and stored["blob_hash"] in "".join(line.strip() for line in lines)


def test_a_list_of_objects_has_a_line_for_each_and_no_raw_json(project: Shell) -> None:
    claims = [project.run("claim", "assert", "fact", statement).result["claim_id"] for statement in ("x", "y")]
    lines = screen(project, "erase", *claims, "--dry-run")
    assert not RAW_JSON.search("".join(lines))
    for claim in claims:
        assert f"id {claim}, type claim, status active, revisions 1" in unfolded(lines)
        assert [claim in line for line in lines].count(True) == 1
    assert not any(all(claim in line for claim in claims) for line in lines)


def test_a_dead_letter_is_shown_by_what_it_is_about_and_why_it_is_dead(project: Shell) -> None:
    message = {
        "version": 1,
        "type": "withdraw",
        "tenant": "local",
        "source": {"system": "wiki", "name": "Studio wiki"},
        "context": CONTEXT,
        "external_id": "page-4",
        "reason": "deleted",
        "observed_at": "2026-03-02T20:40:00Z",
    }
    assert project.run("ingest", "push", "-", stdin=json.dumps(message).encode()).status == 1
    (letter,) = project.run("ingest", "dead", "list").result["letters"]
    lines = screen(project, "ingest", "dead", "list")
    assert lines[:2] == ["withdraw page-4  NOT_FOUND", f"  {letter['letter_id']}"]
    told = unfolded(lines[2:])
    for fact in ("source Studio wiki", "tenant local", "tries: 1", letter["first_at"], letter["last_at"]):
        assert fact in told
    assert told.endswith(letter["reason"]) and len(lines) <= 6
    assert project.run("ingest", "dead", "drop", "--all").result == {"dropped": 1}
    assert screen(project, "ingest", "dead", "list") == ["nothing found"]


@pytest.mark.parametrize(("typed", "meant"), [("serach", "search"), ("claim asert", "assert")])
def test_a_mistyped_command_is_told_which_one_is_near(typed: str, meant: str, shell: Shell) -> None:
    status, output = on_terminal(shell, *typed.split())
    assert status == 2 and f"Did you mean '{meant}'?" in output
    assert "Did you mean" not in on_terminal(shell, "xyzzy")[1]
