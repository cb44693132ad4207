"""The readable commands: one operation each, an envelope when piped, a table on a terminal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from memoree import limits

from .conftest import CONTEXT, Shell, answering

NOWHERE = ("--endpoint", "http://127.0.0.1:9")


@pytest.mark.proves("machine-27")
def test_putting_a_file_twice_makes_two_artifacts(project: Shell) -> None:
    note = project.cwd / "note.md"
    note.write_text("# Kiln\n")
    first = project.run("artifact", "put", note)
    second = project.run("artifact", "put", note)
    assert first.result["artifact_id"] != second.result["artifact_id"]
    assert first.result["title"] == str(note)
    assert first.result["provenance"] == {"source": str(note)}
    assert first.result["media_type"] == "text/markdown"
    assert first.result["kind"] == "document"


def test_a_given_key_makes_a_repeat_harmless(project: Shell) -> None:
    line = ["artifact", "put", "-", "--title", "Note", "--idempotency-key", "k"]
    first = project.run(*line, stdin=b"cone 6")
    again = project.run(*line, stdin=b"cone 6")
    assert first.result["created"] and again.result == first.result | {"created": False}
    assert first.result["provenance"] == {"source": "stdin"}
    assert first.result["media_type"] == "text/plain; charset=utf-8"
    project.run(*line, stdin=b"cone 7").refused("IDEMPOTENCY_CONFLICT", 4)


def test_the_actor_comes_from_the_environment(project: Shell) -> None:
    named = project.having(MEMOREE_ACTOR="potter")
    assert named.run("claim", "assert", "fact", "x").result["actor"] == "potter"
    assert "actor" not in project.run("claim", "assert", "fact", "x").result


@pytest.mark.timeout(180)
def test_eight_mebibytes_of_zeros_come_back_byte_for_byte(project: Shell) -> None:
    zeros = project.cwd / "zeros.txt"
    zeros.write_bytes(b"\0" * limits.ARTIFACT_BYTES_MAX)
    artifact = project.run("artifact", "put", zeros, "--media-type", "text/plain").result["artifact_id"]
    restored = project.cwd / "deep" / "down" / "restored"
    result = project.run("artifact", "get", artifact, "--output", restored).result
    assert "content" not in result
    assert result["materialized_path"] == str(restored)
    assert restored.read_bytes() == zeros.read_bytes()
    zeros.write_bytes(b"\0" * (limits.ARTIFACT_BYTES_MAX + 1))
    project.run("artifact", "put", zeros, *NOWHERE).refused("CONTENT_TOO_LARGE", 2)
    project.run("artifact", "put", "-", *NOWHERE, stdin=zeros.read_bytes()).refused("CONTENT_TOO_LARGE", 2)


def test_an_output_file_is_replaced_only_by_force(project: Shell) -> None:
    artifact = project.run("artifact", "put", "-", stdin=b"new").result["artifact_id"]
    existing = project.cwd / "existing"
    existing.write_text("old")
    run = project.run("artifact", "get", artifact, "--output", existing)
    run.refused("INVALID_REQUEST", 2)
    assert run.envelope["request_id"].startswith("req_0")
    assert existing.read_text() == "old"
    dangling = project.cwd / "dangling"
    dangling.symlink_to("nowhere")
    project.run("artifact", "get", artifact, "--output", dangling).refused("INVALID_REQUEST", 2)
    assert project.run("artifact", "get", artifact, "--output", existing, "--force").result
    assert existing.read_text() == "new"
    assert sorted(entry.name for entry in project.cwd.iterdir()) == ["dangling", "existing"]
    mistake = project.run("artifact", "get", artifact, "--force")
    assert (mistake.status, mistake.stdout) == (2, b"")


@pytest.mark.fault_class(21)
def test_only_regular_files_are_read(project: Shell, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in (tmp_path, pipe, "/dev/zero", "file:///etc/hosts", "missing"):
        project.run("artifact", "put", name, *NOWHERE).refused("INVALID_REQUEST", 2)


def test_the_life_of_an_artifact(project: Shell) -> None:
    made = project.run("artifact", "put", "-", "--title", "Log", "--media-type", "text/markdown", stdin=b"# a").result
    name, revision = made["artifact_id"], made["revision_id"]
    binary = project.cwd / "b.bin"
    binary.write_bytes(b"# b")
    revised = project.run("artifact", "revise", name, binary, "--if-revision", revision).result
    assert (revised["media_type"], revised["title"], revised["revision_number"]) == ("text/markdown", "Log", 2)
    conflict = project.run("artifact", "revise", name, binary, "--if-revision", revision)
    assert conflict.refused("REVISION_CONFLICT", 4)["details"]["current_revision"] == revised["revision_id"]
    other = project.having(MEMOREE_CONTEXT=json.dumps(CONTEXT | {"project_id": "prj_other"}))
    foreign = other.run("artifact", "revise", name, binary, "--if-revision", revised["revision_id"])
    foreign.refused("SCOPE_VIOLATION", 7)
    page = project.run("artifact", "history", name, "--limit", "1").result
    assert page["revisions"][0]["revision_number"] == 2 and page["next_before_revision_number"] == 2
    assert "content" not in project.run("artifact", "get", name, "--metadata-only").result
    assert project.run("artifact", "get", name, "--revision", revision).result["content"]["data"] == "# a"
    forgotten = project.run("artifact", "forget", name, "--reason", "dropped").result
    assert forgotten["physically_erased"] is False and forgotten["retention_notice"]


@pytest.mark.proves("machine-34")
def test_the_life_of_a_claim(project: Shell) -> None:
    artifact = project.run("artifact", "put", "-", stdin=b"cone 6 reached").result
    evidence = f"{artifact['artifact_id']}@{artifact['revision_id']}"
    line = ["claim", "assert", "observation", "Firing", "12", "reached", "cone 6.", "--confidence", "0.8"]
    made = project.run(*line, "--evidence", f"{evidence}#0-6", "--valid-from", "2026-03-02T20:40:00Z").result
    assert made["statement"] == "Firing 12 reached cone 6."
    assert (made["evidence"][0]["start_byte"], made["evidence"][0]["end_byte"]) == (0, 6)
    name = made["claim_id"]
    revise = ["claim", "revise", name, "It was cone 5.", "--if-revision", made["revision_id"]]
    revised = project.run(*revise).result
    assert revised["evidence"] == [] and "confidence" not in revised
    page = project.run("claim", "history", name, "--limit", "1").result
    assert (page["truncated"], page["next_before_revision_number"]) == (True, 2)
    rest = project.run("claim", "history", name, "--limit", "1", "--before-revision-number", "2").result
    assert (rest["truncated"], rest["revisions"][0]["revision_number"]) == (False, 1)
    other = project.having(MEMOREE_CONTEXT=json.dumps(CONTEXT | {"project_id": "prj_other"}))
    assert "context" not in other.run("claim", "history", name).envelope
    assert project.run("claim", "retract", name, "--reason", "wrong").result["status"] == "retracted"
    assert project.run("claim", "get", name, "--revision", made["revision_id"]).result["statement"] == made["statement"]


@pytest.mark.proves("machine-36")
def test_a_wider_search_needs_a_reason(project: Shell) -> None:
    assert project.run("claim", "assert", "fact", "The glaze is celadon.").result
    assert project.run("search", "celadon", "glaze").result["hits"]
    project.run("search", "celadon", "--horizon", "workspace").refused("INVALID_REQUEST", 2)
    wide = project.run("search", "celadon", "--horizon", "workspace", "--reason", "shared glazes")
    assert wide.envelope["context"]["broadened"] is True
    assert project.run("search", "tenmoku").result["broaden_hint"]
    off = project.run("search", "celadon", "--no-recency").result["hits"][0]
    assert off["ranking"]["recency_enabled"] is False
    project.run("search", "celadon", "--min-commit-seq", "9").refused("INDEX_NOT_READY", 6)


def test_discovery_has_commands(shell: Shell) -> None:
    assert shell.run("capabilities").result["protocol_version"] == 1
    assert shell.run("schema").result["operation_inputs"]
    assert shell.run("doctor").result["status"] == "ok"
    assert isinstance(shell.run("instructions", "--format", "json").result["content"], dict)
    shell.run("instructions", "--format", "html").refused("INVALID_REQUEST", 2)


def test_bad_evidence_is_refused_before_anything_is_sent(project: Shell) -> None:
    def must_not_be_asked(*_: object) -> None:
        raise AssertionError("a request was sent")

    with answering(must_not_be_asked) as url:
        run = project.run("claim", "assert", "fact", "x", "--evidence", "a@r#34-12", "--endpoint", url)
    run.refused("INVALID_REQUEST", 2)


def test_a_forgotten_artifact_is_listed_by_historical_search_only_and_without_its_text(project: Shell) -> None:
    artifact = project.run("artifact", "put", "-", "--title", "glaze notes", stdin=b"celadon glaze").result
    forgotten = project.run("artifact", "forget", artifact["artifact_id"], "--reason", "dropped").result
    assert "historical search still lists it" in forgotten["retention_notice"]
    assert project.run("search", "glaze").result["hits"] == []
    found = project.run("search", "glaze", "--include-historical")
    assert [hit["status"] for hit in found.result["hits"]] == ["forgotten"]
    assert b"celadon" not in found.stdout
