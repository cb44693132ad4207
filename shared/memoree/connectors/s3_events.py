"""Event notifications of S3, as they arrive on a queue: straight from the bucket, or through an SNS topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

import orjson

VERSION_MAJOR = "2"
_TEST = "s3:TestEvent"


@dataclass(frozen=True, slots=True)
class Event:
    """An object to look at. What happened to it is not told: by now, something else may have."""

    bucket: str
    key: str


def events_of(body: str) -> list[Event]:
    """Empty for the test event of a new configuration. Raises `ValueError` for a body that is no notification."""
    document = _decoded(body)
    if document.get("Type") == "Notification" and isinstance(document.get("Message"), str):
        document = _decoded(document["Message"])
    if document.get("Event") == _TEST:
        return []
    records = document.get("Records")
    if not isinstance(records, list):
        raise ValueError("it is no event notification of S3: it has no Records")
    return list(_events(records))


def _events(records: list[Any]) -> Iterator[Event]:
    for record in records:
        try:
            version, name, what = record["eventVersion"], record["eventName"], record["s3"]
            event = Event(what["bucket"]["name"], unquote_plus(what["object"]["key"], errors="strict"))
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
            raise ValueError(f"it is no event notification of S3: {error!r}") from None
        if str(version).partition(".")[0] != VERSION_MAJOR:
            raise ValueError(f"event notifications of version {version} are not understood")
        if str(name).removeprefix("s3:").startswith(("ObjectCreated:", "ObjectRemoved:", "LifecycleExpiration:")):
            yield event


def _decoded(body: str) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError("it is no event notification of S3: it is no object")
    return document
