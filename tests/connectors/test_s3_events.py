from __future__ import annotations

import json
from typing import Any

import pytest

from memoree.connectors.s3_events import Event, events_of


def record(key: str = "red+caf%C3%A9%2B1.md", name: str = "ObjectCreated:Put", version: str = "2.1") -> dict[str, Any]:
    return {"eventVersion": version, "eventName": name, "s3": {"bucket": {"name": "b"}, "object": {"key": key}}}


def body(*records: Any) -> str:
    return json.dumps({"Records": records})


def test_keys_are_decoded_as_forms_encode_them() -> None:
    assert events_of(body(record())) == [Event("b", "red café+1.md")]


def test_events_come_through_a_topic_too() -> None:
    wrapped = json.dumps({"Type": "Notification", "Message": body(record("a.md"))})

    assert events_of(wrapped) == [Event("b", "a.md")]


@pytest.mark.parametrize(
    "name", ["ObjectCreated:Copy", "s3:ObjectRemoved:DeleteMarkerCreated", "LifecycleExpiration:Delete"]
)
def test_every_way_to_come_and_go_is_looked_at(name: str) -> None:
    assert events_of(body(record("a.md", name))) == [Event("b", "a.md")]


def test_other_events_tell_nothing() -> None:
    assert events_of(body(record("a.md", "ObjectTagging:Put"))) == []
    assert events_of(json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent"})) == []


@pytest.mark.proves("fault-35")
@pytest.mark.parametrize(
    "wrong",
    ["", "[]", "7", "{}", '"\\ud800"', body(None), body({}), body(record("%FF.md")), body(record(version="3.0"))],
)
def test_what_is_no_event_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|no event notification|version 3"):
        events_of(wrong)
