"""`memoree ingest`: from a script into the store in a directory, without any server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memoree import limits

from .conftest import CONTEXT, Shell

COMMON: dict[str, Any] = {
    "version": 1,
    "tenant": "local",
    "source": {"system": "wiki", "name": "Studio wiki"},
    "context": CONTEXT,
}
REGISTER = {**COMMON, "type": "register"}


def item(external_id: str, **changes: Any) -> dict[str, Any]:
    given = {
        "type": "ingest",
        "external_id": external_id,
        "external_revision": "v1",
        "kind": "wiki_page",
        "title": external_id,
        "content": {"type": "text", "data": f"The page {external_id} about celadon"},
        "observed_at": "2026-03-02T20:40:00Z",
    }
    return {**COMMON, **given, **changes}


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def test_pushed_messages_are_applied_before_the_command_ends(project: Shell) -> None:
    large = item("large", content={"type": "text", "data": "x" * (limits.INGEST_INLINE_BYTES_MAX + 1)})
    file = project.cwd / "messages.jsonl"
    file.write_bytes(lines(REGISTER, item("page-1"), large) + b"\n")
    for _ in range(2):
        assert project.run("ingest", "push", file).result == {"published": 3, "dead_letters": 0}
    hits = project.run("search", "celadon").result["hits"]
    assert [hit["title"] for hit in hits] == ["page-1"]
    assert (
        project.run("ingest", "status").result
        == {
            "waiting": 0,
            "in_flight": 0,
            "dead_letters": 0,
            "oldest_age_seconds": None,
            "queue_lag_warn": False,
        }
        or project.run("ingest", "status").result["oldest_age_seconds"] is None
    )


@pytest.mark.fault_class(1)
@pytest.mark.proves("fault-1", "operations-54")
def test_a_dead_letter_is_told_listed_shown_retried_and_dropped(project: Shell) -> None:
    pushed = project.run("ingest", "push", "-", stdin=lines(item("page-1"), item("page-2")))
    assert pushed.status == 1
    assert pushed.envelope["result"] == {"published": 2, "dead_letters": 2}
    letters = project.run("ingest", "dead", "list").result["letters"]
    first, second = sorted(letters, key=lambda letter: str(letter["external_id"]))  # items are no order to each other
    assert (first["external_id"], first["code"], first["tries"]) == ("page-1", "NOT_FOUND", 1)
    shown = project.run("ingest", "dead", "show", first["letter_id"]).result
    assert shown["message"]["content"]["data"] == "The page page-1 about celadon"
    project.run("ingest", "dead", "show", "nobody").refused("NOT_FOUND", 3)
    assert project.run("ingest", "dead", "drop", second["letter_id"]).result == {"dropped": 1}
    assert project.run("ingest", "dead", "retry", "--all").result == {"retried": 1}
    too_soon = project.run("ingest", "push", "-", stdin=lines(REGISTER))
    assert too_soon.envelope["result"] == {"published": 1, "dead_letters": 1}, "it stood before the registration"
    assert project.run("ingest", "dead", "retry", "--all").result == {"retried": 1}
    assert project.run("ingest", "push", "-", stdin=b"").result == {"published": 0, "dead_letters": 0}
    assert project.run("ingest", "dead", "list").result == {"letters": []}
    assert project.run("search", "celadon").result["hits"][0]["title"] == "page-1"


def test_a_line_that_is_no_message_is_named_and_those_before_it_are_applied(project: Shell) -> None:
    refused = project.run("ingest", "push", "-", stdin=lines(REGISTER, item("page-1"), {"version": 2}))
    error = refused.refused("INVALID_REQUEST", 2)
    assert "line 3" in error["message"]
    assert project.run("ingest", "push", "-", stdin=lines(item("page-1"))).result["dead_letters"] == 0


@pytest.mark.parametrize(("changes", "reason"), [({"tenant": "stranger"}, "tenant"), ({"title": ""}, "title")])
def test_content_is_uploaded_only_for_a_message_that_stands(
    changes: dict[str, Any], reason: str, project: Shell
) -> None:
    content = {"type": "text", "data": "x" * (limits.INGEST_INLINE_BYTES_MAX + 1)}
    refused = project.run("ingest", "push", "-", stdin=lines(REGISTER, item("large", content=content, **changes)))
    error = refused.refused("INVALID_REQUEST", 2)
    assert "line 2" in error["message"] and reason in error["message"]
    stored = [path for path in project.cwd.parent.rglob("*") if path.is_file() and path.stat().st_size > 128 * 1024]
    assert [path for path in stored if "uploads" in str(path) or "stranger" in str(path)] == []


def test_naming_no_letter_and_naming_all_besides_some_are_mistakes(project: Shell) -> None:
    for change in ("retry", "drop"):
        for line in ((), ("some-letter", "--all")):
            assert project.run("ingest", "dead", change, *line).status == 2


def test_the_schema_is_printed(project: Shell) -> None:
    assert project.run("ingest", "schema").result["title"] == "Memoree ingest message, version 1"
