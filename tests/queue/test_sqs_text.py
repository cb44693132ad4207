"""What a body counts on its way over SQS."""

from __future__ import annotations

import pytest

from memoree.queue import MESSAGE_BYTES_MAX, MessageTooLarge, OutgoingMessage
from memoree.queue.sqs import _entry
from memoree.queue.sqs_text import unescaped, wire_bytes

BODIES = ["plain", "100 %", "ü" * 10, "\uffff", "%\uffff%0025", "\x01\ufffe\U0001f600"]


@pytest.mark.parametrize("body", BODIES)
def test_a_body_comes_back_and_counts_what_is_sent(body: str) -> None:
    entry = _entry(OutgoingMessage(body, "group", "dedup"))
    attributes = "".join(name + "String" + value["StringValue"] for name, value in _attributes(entry).items())
    assert wire_bytes(body) == len(entry["MessageBody"].encode()) + len(attributes)
    assert "escaped" not in attributes or unescaped(entry["MessageBody"]) == body


@pytest.mark.proves("operations-49")
@pytest.mark.parametrize("text", ["%d800", "%dfff%d83d%de00", "%0041", "100 %", "%0001" + "%" * 200_000, "%ffff 100 %"])
def test_what_nobody_would_send_is_read_as_it_is_and_can_be_a_dead_letter(text: str) -> None:
    assert unescaped(text) == text
    assert wire_bytes(unescaped(text)) <= MESSAGE_BYTES_MAX


def test_the_largest_by_this_count_are_taken_and_no_larger_ones() -> None:
    fits = "\uffff" + "%" * ((MESSAGE_BYTES_MAX - wire_bytes("\uffff")) // 5)
    assert wire_bytes(fits) <= MESSAGE_BYTES_MAX < wire_bytes(fits + "%")
    _entry(OutgoingMessage(fits, "group", "dedup"))
    with pytest.raises(MessageTooLarge):
        _entry(OutgoingMessage(fits + "%", "group", "dedup"))


def _attributes(entry: object) -> dict[str, dict[str, str]]:
    assert isinstance(entry, dict)
    return entry.get("MessageAttributes", {})
