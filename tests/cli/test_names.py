"""What is printed may be pasted back: names of entities, evidence and citations on the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from memoree.cli.names import parse_citation, parse_entity, parse_evidence, parse_revision, parse_whole
from memoree.errors import Code, MemoreeError

from .conftest import Run


@pytest.mark.parametrize(
    ("text", "revision"),
    [
        ("art_1", None),
        ("artifact:art_1", None),
        ("art_1@arev_2", "arev_2"),
        ("artifact:art_1@arev_2", "arev_2"),
        ("memoree://artifact/art_1@arev_2", "arev_2"),
        ("memoree://artifact/art_1@arev_2#0-4", "arev_2"),
    ],
)
def test_an_artifact_is_named_in_every_form_that_is_printed(text: str, revision: str | None) -> None:
    assert parse_revision(text, "artifact", None) == ("art_1", revision)
    assert parse_revision(text, "artifact", "arev_2") == ("art_1", "arev_2")


def test_an_id_of_any_form_is_left_as_it_is() -> None:
    assert parse_revision("A:1", "artifact", "R") == ("A:1", "R")
    assert parse_revision("A@", "artifact", None) == ("A", "")
    assert parse_whole("A:1", "claim") == "A:1"
    assert parse_entity("artifact:A:1") == ("artifact", "A:1")


def test_the_citation_of_a_claim_names_it() -> None:
    assert parse_revision("memoree://claim/clm_1@crev_2", "claim", None) == ("clm_1", "crev_2")
    assert parse_entity("clm_1") == ("claim", "clm_1")


def refusal_of(parse: object, *given: object) -> str:
    """The message of an `INVALID_REQUEST`."""
    assert callable(parse)
    with pytest.raises(MemoreeError) as caught:
        parse(*given)
    assert caught.value.code is Code.INVALID_REQUEST
    return caught.value.message


@pytest.mark.parametrize("text", ["clm_1", "claim:clm_1", "memoree://claim/clm_1@crev_2"])
def test_a_claim_where_an_artifact_is_meant_is_told_which_command_shows_it(text: str) -> None:
    for parse in (parse_whole, lambda text, wanted: parse_revision(text, wanted, None)):
        message = refusal_of(parse, text, "artifact")
        assert "the claim clm_1" in message and "`memoree claim get`" in message


def test_a_revision_where_all_of_them_are_meant_is_told_what_to_write() -> None:
    assert refusal_of(parse_whole, "art_1@arev_2", "artifact").endswith("write art_1")
    assert refusal_of(parse_entity, "memoree://claim/clm_1@crev_2").endswith("write claim:clm_1")


def test_two_revisions_that_disagree_are_refused() -> None:
    assert "another revision" in refusal_of(parse_revision, "art_1@arev_2", "artifact", "arev_3")


@pytest.mark.parametrize("text", ["memoree://claim/clm_1@crev_2", "claim:clm_1", "clm_1@crev_2"])
def test_a_claim_is_no_evidence_and_the_refusal_says_what_relates_claims(text: str) -> None:
    assert "memoree link" in refusal_of(parse_evidence, text)


@pytest.mark.parametrize(
    ("text", "citation"),
    [
        ("memoree://artifact/art_1@arev_2#0-4", "memoree://artifact/art_1@arev_2#0-4"),
        ("art_1@arev_2#0-4", "memoree://artifact/art_1@arev_2#0-4"),
        ("artifact:art_1@arev_2", "memoree://artifact/art_1@arev_2"),
        ("clm_1@crev_2", "memoree://claim/clm_1@crev_2"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_citation_may_be_written_without_its_prefix(text: str, citation: str) -> None:
    assert parse_citation(text) == citation


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("a@r", None),
        ("a@r#12-34", (12, 34)),
        ("a@r#0-1", (0, 1)),
        ("a@r@s#1-2", (1, 2)),
        ("memoree://artifact/a@r#12-34", (12, 34)),
        ("artifact:a@r#12-34", (12, 34)),
    ],
)
def test_evidence_names_a_revision_and_perhaps_a_span(text: str, span: tuple[int, int] | None) -> None:
    locator = parse_evidence(text)
    assert locator["artifact_id"] == "a" and locator["revision_id"] in ("r", "r@s")
    assert (locator.get("start_byte"), locator.get("end_byte")) == (span or (None, None))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "memoree://artifact/@r",
        "@r",
        "a@",
        " @r",
        "a@r#",
        "a@r#-",
        "a@r#34-12",
        "a@r#5-5",
        "a@r#x-9",
        "a@r#-1-9",
        "a@r#1",
        "a@r#²-9",
    ],
)
def test_evidence_that_says_neither_is_refused(text: str) -> None:
    with pytest.raises(MemoreeError) as caught:
        parse_evidence(text)
    assert caught.value.code is Code.INVALID_REQUEST


def test_what_a_command_prints_is_taken_by_the_next_one(inside: Callable[..., Run], tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("cone 6 reached")
    artifact = inside("artifact", "put", str(note)).result
    name = f"{artifact['artifact_id']}@{artifact['revision_id']}"
    claim = inside("claim", "assert", "fact", "It reached cone 6.", "--evidence", f"artifact:{name}#0-6").result
    claim_name = f"{claim['claim_id']}@{claim['revision_id']}"
    inside("artifact", "revise", name, str(note), "--if-revision", artifact["revision_id"])
    for hit in inside("search", "cone").result["hits"]:
        shown = inside(hit["entity_type"], "get", hit["citation"]).result
        assert (shown[f"{hit['entity_type']}_id"], shown["revision_id"]) == (hit["entity_id"], hit["revision_id"])
    assert inside("artifact", "get", name).result["revision_id"] == artifact["revision_id"]
    assert inside("citation", "get", f"{name}#0-6").result["content"] == "cone 6"
    error = inside("citation", "get", claim_name).refused("CITATION_ERROR", 2)
    assert "cites a claim" in error["message"]
    inside("claim", "retract", claim_name, "--reason", "x").refused("INVALID_REQUEST", 2)
    assert inside("claim", "get", claim_name).result["status"] == "active"
