"""The contract of the ingest queue: what a connector may say, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from memoree import limits
from memoree.errors import MemoreeError
from memoree.ingest.message import InlineContent, from_body, group_of, item_of, json_schema, to_body

from .conftest import CONTEXT, at, checkpoint, item, register, withdraw

SCHEMA = Path(__file__).parents[2] / "docs/schemas/ingest-message-1.json"
CONTENTS = {
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "not-utf-8": b"\xff\xfe",
    "utf-16": "Kiln\n".encode("utf-16"),
    "empty": b"",
    "one-byte": b"\0",
    "bom-and-crlf": b"\xef\xbb\xbfKiln\r\n",
    "half-a-character": "Gl\u00e4nze"[:3].encode()[:-1],
}


def document(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(to_body(item()))
    return {name: value for name, value in {**found, **changes}.items() if value is not None}


@pytest.mark.proves("operations-55")
def test_the_schema_in_the_documentation_is_the_one_of_the_models() -> None:
    assert orjson.loads(SCHEMA.read_bytes()) == json_schema(), "write what `memoree ingest schema` prints there"


@pytest.mark.parametrize("message", [register(), item(), checkpoint("c-1"), withdraw()], ids=lambda m: m.type)
def test_a_message_is_read_as_it_was_written(message: Any) -> None:
    assert from_body(to_body(message)) == message


@pytest.mark.fault_class(61)
@pytest.mark.proves("fault-61", "operations-52")
@pytest.mark.parametrize("name", CONTENTS)
def test_content_travels_byte_for_byte(name: str) -> None:
    content = InlineContent.of(CONTENTS[name])
    assert content.decoded() == CONTENTS[name]
    read = from_body(to_body(item(content=content.decoded())))
    assert read == item(content=CONTENTS[name])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("glaze", "not valid JSON"),
        ("[]", "a message is a JSON object"),
        ('{"type": "ingest"}', "version: is required"),
        (orjson.dumps(document(version=2)).decode(), "version 2 of ingest messages is not supported"),
        (orjson.dumps(document(version=True)).decode(), "version True of ingest messages"),
        (orjson.dumps(document(type="erase")).decode(), "type: must be one of register, ingest, checkpoint, withdraw"),
        (orjson.dumps(document(surprise=1)).decode(), "surprise: unknown member"),
        (orjson.dumps(document(observed_at=None)).decode(), "observed_at"),
        (orjson.dumps(document(tenant="../etc")).decode(), "cannot name a tenant"),
        (orjson.dumps(document(content={"type": "base64", "data": "%"})).decode(), "not standard base64"),
        (orjson.dumps(document(content={"type": "text", "data": "x" * (limits.INGEST_INLINE_BYTES_MAX + 1)})).decode(),
         "too many for a message"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused_with_what_is_wrong(body: str, told: str) -> None:
    with pytest.raises(MemoreeError, match=told):
        from_body(body)


def test_a_source_is_a_group_of_its_own_and_only_items_commute() -> None:
    elsewhere = CONTEXT.model_copy(update={"project_id": "prj_shop"})
    groups = {group_of(each) for each in (item(), item("page-2"), register(), withdraw(), checkpoint("c"))}
    assert len(groups) == 1
    assert group_of(item(context=elsewhere)) not in groups
    assert group_of(item(tenant="other")) not in groups
    assert [item_of(each) for each in (item(), withdraw("page-2"), register(), checkpoint("c"))] == [
        "page-1",
        "page-2",
        None,
        None,
    ]


def test_an_instant_with_another_offset_is_the_same_message() -> None:
    assert item(observed_at="2026-03-02T21:01:00+01:00") == item(observed_at=at(1))
