"""The commands of relations, conflicts, sources, projections, feedback, citations and administration: what they send,
and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from .conftest import CONTEXT, Json, Run, Shell, answering, respond

CITATION = "memoree://artifact/a@r#0-4"


@contextmanager
def recording() -> Iterator[tuple[str, list[Json]]]:
    """A server that takes every request for granted, its address, and the requests it got."""
    requests: list[Json] = []

    def take(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        request = json.loads(body)
        requests.append(request)
        answer = {"v": 1, "request_id": request["request_id"], "ok": True, "result": {}, "warnings": []}
        respond(handler, 200, "application/json", json.dumps(answer).encode())

    with answering(take) as url:
        yield url, requests


def sent(shell: Shell, *line: str | Path, stdin: bytes = b"") -> Json:
    """The one request that a command sends."""
    with recording() as (url, requests):
        run = shell.run(*line, "--endpoint", url, stdin=stdin)
    assert run.status == 0, run
    (request,) = requests
    return request


def refused_unsent(shell: Shell, *line: str) -> Run:
    with recording() as (url, requests):
        run = shell.run(*line, "--endpoint", url)
    assert requests == []
    return run


def typed(line: str) -> list[str]:
    return line.split()


EDGE = {"source_type": "artifact", "source_id": "A", "target_type": "claim", "target_id": "C"}
PROJECTION = ["projection", "put", "A", "green", "glaze", "--revision", "R", "--projection-key", "summary"]
PROJECTION += ["--kind", "alias", "--generator", "g", "--generator-version", "1", "--generator-digest", "d"]
SENT: list[tuple[list[str], str, Json]] = [
    (["citation", "get", CITATION], "citation.get", {"citation": CITATION, "max_bytes": 8192}),
    (["citation", "get", CITATION, "--max-bytes", "5"], "citation.get", {"citation": CITATION, "max_bytes": 5}),
    (
        ["link", "artifact:A", "derived-from", "claim:C"],
        "relation.put",
        EDGE | {"relation": "derived_from"},
    ),
    (
        ["relation", "put", "artifact:A", "supports", "claim:C", "--metadata", '{"by":"x"}'],
        "relation.put",
        EDGE | {"relation": "supports", "metadata": {"by": "x"}},
    ),
    (
        ["relation", "list", "claim:C"],
        "relation.list",
        {"entity_type": "claim", "entity_id": "C", "direction": "both", "limit": 100, "horizon": "ambient"},
    ),
    (
        typed(
            "relation list artifact:A:1 --direction outgoing --relation derived-from --limit 3 --before-commit-seq 9 "
            "--horizon workspace --reason why"
        ),
        "relation.list",
        {"entity_type": "artifact", "entity_id": "A:1", "direction": "outgoing", "relation": "derived_from", "limit": 3}
        | {"before_commit_seq": 9, "horizon": "workspace", "reason": "why"},
    ),
    (["conflict", "list"], "conflict.list", {"include_stale": False, "limit": 100, "horizon": "ambient"}),
    (
        typed("conflict list --include-stale --limit 5 --before-case-sequence 7 --horizon personal --reason why"),
        "conflict.list",
        {"include_stale": True, "limit": 5, "before_case_sequence": 7, "horizon": "personal", "reason": "why"},
    ),
    (
        ["source", "register", "Studio wiki", "--kind", "wiki_adapter"],
        "source.register",
        {"name": "Studio wiki", "kind": "wiki_adapter"},
    ),
    (
        ["source", "register", "Wiki", "--kind", "w", "--locator", "https://wiki.example", "--metadata", '{"a":1}'],
        "source.register",
        {"name": "Wiki", "kind": "w", "locator": "https://wiki.example", "metadata": {"a": 1}},
    ),
    (["source", "get", "src_1"], "source.get", {"source_id": "src_1"}),
    (
        ["source", "checkpoint", "src_1", "--health", "degraded"],
        "source.checkpoint",
        {"source_id": "src_1", "health": "degraded"},
    ),
    (
        typed(
            "source checkpoint src_1 --health error --cursor c-1 --message skipped --observed-at 2026-03-02T20:41:07Z"
        ),
        "source.checkpoint",
        {"source_id": "src_1", "health": "error", "cursor": "c-1", "message": "skipped"}
        | {"observed_at": "2026-03-02T20:41:07Z"},
    ),
    (
        ["source", "withdraw", "src_1", "page-4", "--reason", "deleted", "--observed-at", "2026-03-02T20:41:07Z"],
        "source.withdraw",
        {"source_id": "src_1", "external_id": "page-4", "reason": "deleted", "observed_at": "2026-03-02T20:41:07Z"},
    ),
    (
        [*PROJECTION, "--span", "0-4", "--span", "9-12", "--metadata", "{}"],
        "projection.put",
        {
            "artifact_id": "A",
            "revision_id": "R",
            "projection_key": "summary",
            "kind": "alias",
            "text": "green glaze",
            "evidence_spans": [{"start_byte": 0, "end_byte": 4}, {"start_byte": 9, "end_byte": 12}],
            "generator": "g",
            "generator_version": "1",
            "generator_digest": "d",
            "metadata": {},
        },
    ),
    (["projection", "list", "A"], "projection.list", {"artifact_id": "A", "limit": 100}),
    (
        ["projection", "list", "A", "--revision", "R", "--limit", "2"],
        "projection.list",
        {"artifact_id": "A", "revision_id": "R", "limit": 2},
    ),
    (
        ["projection", "drop", "proj_1", "--reason", "withdrawn"],
        "projection.drop",
        {"projection_id": "proj_1", "reason": "withdrawn"},
    ),
    (
        ["feedback", "record", "which", "cone", "--outcome", "miss"],
        "feedback.record",
        {"query": "which cone", "outcome": "miss", "retain_query": False, "citations": []},
    ),
    (
        typed("feedback record cone --outcome useful --retain-query --citation x --citation y --note n"),
        "feedback.record",
        {"query": "cone", "outcome": "useful", "retain_query": True, "citations": ["x", "y"], "note": "n"},
    ),
    (["feedback", "get", "fb_1"], "feedback.get", {"feedback_id": "fb_1"}),
    (["feedback", "list"], "feedback.list", {"limit": 100}),
    (
        ["feedback", "list", "--limit", "2", "--before-commit-seq", "0"],
        "feedback.list",
        {"limit": 2, "before_commit_seq": 0},
    ),
    (
        ["feedback", "export", "--limit", "2", "--before-commit-seq", "9"],
        "feedback.export",
        {"limit": 2, "before_commit_seq": 9},
    ),
    (
        ["context", "build", "which", "cone"],
        "context.build",
        {"query": "which cone", "limit": 10, "max_bytes": 16384, "include_historical": False}
        | {"recency": {"enabled": True}, "horizon": "ambient"},
    ),
    (
        typed(
            "context build cone --limit 3 --max-bytes 0 --include-historical --min-commit-seq 9 --no-recency "
            "--horizon workspace --reason why"
        ),
        "context.build",
        {"query": "cone", "limit": 3, "max_bytes": 0, "include_historical": True, "min_commit_seq": 9}
        | {"recency": {"enabled": False}, "horizon": "workspace", "reason": "why"},
    ),
    (
        ["retrieve", "which", "cone"],
        "memory.retrieve",
        {"query": "which cone", "max_claims": 5, "max_artifact_refs": 3, "max_excerpt_bytes": 320}
        | {"max_recovery_leads": 8, "max_recovery_bytes": 12288, "profile": False}
        | {"recency": {"enabled": True}, "horizon": "ambient"},
    ),
    (
        typed(
            "retrieve cone --reformulation kiln --max-claims 1 --max-artifact-refs 2 --max-excerpt-bytes 3 "
            "--max-recovery-leads 4 --max-recovery-bytes 5 --min-commit-seq 9 --no-recency --profile "
            "--horizon workspace --reason why"
        ),
        "memory.retrieve",
        {"query": "cone", "reformulation": "kiln", "max_claims": 1, "max_artifact_refs": 2, "max_excerpt_bytes": 3}
        | {"max_recovery_leads": 4, "max_recovery_bytes": 5, "min_commit_seq": 9, "profile": True}
        | {"recency": {"enabled": False}, "horizon": "workspace", "reason": "why"},
    ),
    (
        ["probe", "which", "cone"],
        "memory.probe",
        {"query": "which cone", "max_leads": 8, "recency": {"enabled": True}, "horizon": "ambient"},
    ),
    (
        typed("probe cone --original-query kiln --max-leads 2 --min-commit-seq 9 --no-recency"),
        "memory.probe",
        {"query": "cone", "original_query": "kiln", "max_leads": 2, "min_commit_seq": 9}
        | {"recency": {"enabled": False}, "horizon": "ambient"},
    ),
    (["verify"], "verify", {}),
    (["backup", "create", "/srv/backup"], "backup.create", {"destination": "/srv/backup"}),
]
MUTATIONS = {"relation.put", "feedback.record", "projection.put", "projection.drop"}
MUTATIONS |= {"source.register", "source.checkpoint", "source.withdraw", "source.ingest"}
WITHOUT_CONTEXT = {"citation.get", "verify", "backup.create"}


@pytest.mark.parametrize(("line", "op", "expected"), SENT, ids=lambda value: " ".join(value)[:60])
def test_a_command_sends_what_it_says(project: Shell, line: list[str], op: str, expected: Json) -> None:
    request = sent(project, *line)
    assert (request["op"], request["input"]) == (op, expected)
    assert ("context" in request) is (op not in WITHOUT_CONTEXT)
    if op in MUTATIONS:
        assert request["idempotency_key"] == f"auto_{request['request_id']}"
    else:
        assert "idempotency_key" not in request


@pytest.mark.parametrize(
    "line",
    [line for line, op, _ in SENT if op in MUTATIONS],
    ids=lambda line: " ".join(line)[:60],
)
def test_a_given_key_is_sent_and_the_actor_where_there_is_one(project: Shell, line: Sequence[str]) -> None:
    request = sent(project.having(MEMOREE_ACTOR="potter"), *line, "--idempotency-key", "mine")
    assert request["idempotency_key"] == "mine"
    assert ("actor" in request["input"]) is (request["op"] != "relation.put")


def test_an_item_is_read_from_a_file_or_from_standard_input(project: Shell) -> None:
    page = project.cwd / "page.md"
    page.write_text("# Celadon")
    line = ["--external-id", "page-4", "--external-revision", "v9"]
    request = sent(project, "source", "ingest", "src_1", page, *line)
    assert request["op"] == "source.ingest"
    assert request["input"] == {
        "source_id": "src_1",
        "external_id": "page-4",
        "external_revision": "v9",
        "kind": "document",
        "title": "page-4",
        "media_type": "text/markdown",
        "content": {"type": "text", "data": "# Celadon"},
    }
    more = ["--kind", "wiki_page", "--title", "Glaze", "--media-type", "text/x-wiki", "--provenance", '{"a":1}']
    more += ["--observed-at", "2026-03-02T20:41:07Z", "--cursor", "c-118"]
    request = sent(project, "source", "ingest", "src_1", "-", *line, *more, stdin=b"\xff")
    assert request["input"] == {
        "source_id": "src_1",
        "external_id": "page-4",
        "external_revision": "v9",
        "kind": "wiki_page",
        "title": "Glaze",
        "media_type": "text/x-wiki",
        "content": {"type": "base64", "data": "/w=="},
        "provenance": {"a": 1},
        "observed_at": "2026-03-02T20:41:07Z",
        "cursor": "c-118",
    }


@pytest.mark.proves("machine-217")
@pytest.mark.parametrize(
    ("given", "below"),
    [("copy", "copy"), ("./deep/copy/", "deep/copy"), ("../copy", "../copy"), ("glaze ü", "glaze ü")],
)
def test_a_relative_destination_is_made_absolute_before_it_is_sent(shell: Shell, given: str, below: str) -> None:
    assert sent(shell, "backup", "create", given)["input"] == {"destination": f"{shell.cwd}/{below}"}


@pytest.mark.parametrize(
    "line",
    [
        ["link", "A", "supports", "claim:C"],
        ["link", "artifact:", "supports", "claim:C"],
        ["link", "artifact: ", "supports", "claim:C"],
        ["link", "relation:R", "supports", "claim:C"],
        ["link", "artifact:A", "supports", "Claim:C"],
        ["relation", "list", "A"],
        ["relation", "put", "artifact:A", "supports", "claim:C", "--metadata", "{"],
        ["relation", "put", "artifact:A", "supports", "claim:C", "--metadata", "[]"],
        ["source", "register", "x", "--kind", "k", "--metadata", "null"],
        ["source", "ingest", "src_1", "/dev/null/none", "--external-id", "e", "--external-revision", "r"],
        [*PROJECTION, "--span", "4"],
        [*PROJECTION, "--span", "4-4"],
        [*PROJECTION, "--span", "-1-4"],
        [*PROJECTION, "--span", f"0-{2**64}"],
        ["feedback", "list", "--limit", "9" * 30],
    ],
    ids=lambda line: " ".join(line)[:60],
)
def test_what_can_be_seen_to_be_wrong_is_not_sent(project: Shell, line: list[str]) -> None:
    refused_unsent(project, *line).refused("INVALID_REQUEST", 2)


@pytest.mark.parametrize(
    "line",
    [
        ["link", "artifact:A", "derived_from", "claim:C"],
        ["link", "artifact:A", "supports"],
        ["relation", "list", "artifact:A", "--direction", "up"],
        ["conflict", "list", "--limit", "many"],
        ["source", "register", "x"],
        ["source", "checkpoint", "src_1", "--health", "well"],
        ["source", "withdraw", "src_1", "page-4"],
        PROJECTION,
        ["feedback", "record", "cone"],
        ["feedback", "record", "cone", "--outcome", "good"],
        ["backup", "create"],
        ["verify", "all"],
    ],
    ids=lambda line: " ".join(line)[:60],
)
def test_a_mistyped_line_is_answered_with_usage(project: Shell, line: list[str]) -> None:
    run = refused_unsent(project, *line)
    assert (run.status, run.stdout) == (2, b"")
    assert "Usage: memoree" in run.stderr


def test_an_argument_that_is_no_text_is_refused(project: Shell) -> None:
    run = project.run("citation", "get", b"memoree://\xff".decode(errors="surrogateescape"))
    run.refused("INVALID_REQUEST", 2)


# --- end to end -------------------------------------------------------------------------------------------------


def test_citations_are_fetched_exactly_and_their_failures_end_with_2(project: Shell) -> None:
    artifact = project.run("artifact", "put", "-", stdin="👩🏽‍💻 naïve".encode()).result
    name = f"memoree://artifact/{artifact['artifact_id']}@{artifact['revision_id']}"
    nowhere = Shell(project.home, project.cwd)
    fetched = nowhere.run("citation", "get", f"{name}#0-15", "--max-bytes", "5").result
    assert (fetched["content"], fetched["citation"], fetched["remaining_bytes"]) == ("👩", f"{name}#0-4", 11)
    assert nowhere.run("citation", "get", fetched["citation"]).result["truncated"] is False
    for line, kind in (
        ([name], "range_required"),
        ([f"{name}#0-4", "--max-bytes", "3"], "invalid_output_limit"),
        ([f"{name}#1-4"], "utf8_boundary"),
    ):
        error = nowhere.run("citation", "get", *line).refused("CITATION_ERROR", 2)
        assert error["details"]["citation_error"] == kind


def test_a_link_is_listed_from_its_source(project: Shell) -> None:
    artifact = project.run("artifact", "put", "-", stdin=b"cone 6 reached").result["artifact_id"]
    claim = project.run("claim", "assert", "fact", "It reached cone 6.").result["claim_id"]
    line = ["link", f"artifact:{artifact}", "supports", f"claim:{claim}", "--idempotency-key", "k"]
    made = project.run(*line).result
    assert project.run(*line).result == made | {"created": False}
    listing = ["relation", "list", f"artifact:{artifact}", "--relation", "supports"]
    found = project.run(*listing, "--direction", "outgoing").result["relations"]
    assert [edge["relation_id"] for edge in found] == [made["relation_id"]]
    assert project.run(*listing, "--direction", "incoming").result["relations"] == []
    again = ["relation", "put", *line[1:4], "--metadata", '{"by":"x"}']
    project.run(*again).refused("INVALID_REQUEST", 2)
    project.run("link", f"artifact:{artifact}", "supports", "claim:clm_unknown").refused("NOT_FOUND", 3)
    other = project.having(MEMOREE_CONTEXT=json.dumps(CONTEXT | {"project_id": "prj_other"}))
    other.run(*listing).refused("SCOPE_VIOLATION", 7)
    project.run(*listing, "--horizon", "workspace").refused("INVALID_REQUEST", 2)


def test_a_contradiction_is_listed_until_it_is_decided(project: Shell) -> None:
    claims = [project.run("claim", "assert", "fact", f"It was cone {cone}.").result for cone in (5, 6)]
    assert project.run("link", *[f"claim:{claims[0]['claim_id']}", "contradicts", f"claim:{claims[1]['claim_id']}"])
    (case,) = project.run("conflict", "list").result["conflicts"]
    assert (case["state"], case["source"]["claim_id"]) == ("open", claims[0]["claim_id"])
    assert project.run("claim", "retract", claims[0]["claim_id"], "--reason", "misread").result
    assert project.run("conflict", "list", "--include-stale").result["conflicts"] == []


def test_a_source_delivers_and_withdraws(project: Shell) -> None:
    source = project.run("source", "register", "Studio wiki", "--kind", "wiki").result["source_id"]
    line = ["source", "ingest", source, "-", "--external-id", "page-4", "--cursor", "c-1"]
    first = project.run(*line, "--external-revision", "v1", stdin=b"Celadon: 2% iron").result
    assert first["source"]["health"] == "healthy"
    again = project.run(*line, "--external-revision", "v1", stdin=b"Celadon: 2% iron").result
    assert (again["created"], again["commit_seq"]) == (False, first["commit_seq"])
    changed = project.run(*line, "--external-revision", "v1", stdin=b"Celadon: 3% iron")
    changed.refused("REVISION_CONFLICT", 4)
    told = ["source", "checkpoint", source, "--health", "degraded", "--message", "2 pages skipped"]
    assert project.run(*told).result["health_message"] == "2 pages skipped"
    assert project.run("source", "get", source).result["cursor"] == "c-1"
    gone = project.run("source", "withdraw", source, "page-4", "--reason", "deleted").result
    assert gone["artifact"]["status"] == "forgotten" and gone["erasure_performed"] is False
    project.run("source", "withdraw", source, "page-5", "--reason", "deleted").refused("NOT_FOUND", 3)


def test_a_projection_is_put_listed_and_dropped(project: Shell) -> None:
    artifact = project.run("artifact", "put", "-", stdin=b"Celadon: 2% iron").result
    line = ["projection", "put", artifact["artifact_id"], "green", "glaze", "--revision", artifact["revision_id"]]
    line += [*PROJECTION[PROJECTION.index("--projection-key") :], "--span", "0-7"]
    made = project.run(*line).result
    assert (made["text"], made["evidence_spans"]) == ("green glaze", [{"start_byte": 0, "end_byte": 7}])
    dropped = project.run("projection", "drop", made["projection_id"], "--reason", "wrong").result
    assert dropped["status"] == "dropped"
    listed = project.run("projection", "list", artifact["artifact_id"]).result["projections"]
    assert [(item["projection_id"], item["dropped_reason"]) for item in listed] == [(made["projection_id"], "wrong")]


def test_feedback_is_recorded_and_exported(project: Shell) -> None:
    made = project.run("feedback", "record", "which", "cone", "--outcome", "miss").result
    kept = project.run("feedback", "record", "which", "glaze", "--outcome", "stale", "--retain-query").result
    assert "retained_query" not in made and kept["retained_query"] == "which glaze"
    assert project.run("feedback", "get", made["feedback_id"]).result["outcome"] == "miss"
    listed = project.run("feedback", "list", "--limit", "1").result
    assert listed["next_before_commit_seq"] == kept["commit_seq"]
    rest = project.run("feedback", "list", "--before-commit-seq", str(kept["commit_seq"])).result
    assert [record["feedback_id"] for record in rest["feedback"]] == [made["feedback_id"]]
    assert [case["query"] for case in project.run("feedback", "export").result["cases"]] == ["which glaze"]
    other = project.having(MEMOREE_CONTEXT=json.dumps(CONTEXT | {"project_id": "prj_other"}))
    other.run("feedback", "get", made["feedback_id"]).refused("SCOPE_VIOLATION", 7)


def test_a_damaged_store_is_reported_with_status_0(project: Shell) -> None:
    stored = project.run("artifact", "put", "-", stdin=b"x" * 20_000).result
    assert project.run("verify").result["ok"] is True
    (blob,) = (path for path in project.home.rglob(stored["blob_hash"]) if path.is_file())
    blob.chmod(0o600)
    blob.write_bytes(b"y" * 20_000)
    found = project.run("verify").result
    assert found["ok"] is False and stored["blob_hash"] in " ".join(found["issues"])


@pytest.mark.proves("machine-217")
def test_a_backup_lands_below_the_working_directory_and_replaces_nothing(project: Shell) -> None:
    assert project.run("claim", "assert", "fact", "x").result
    made = project.run("backup", "create", "copies").result
    assert made["destination"] == str(project.cwd / "copies")
    copied: dict[Path, Any] = {
        path: path.read_bytes() for path in (project.cwd / "copies").rglob("*") if path.is_file()
    }
    assert Path(made["database"]) in copied
    project.run("backup", "create", "copies").refused("INVALID_REQUEST", 2)
    assert {path: path.read_bytes() for path in copied} == copied
