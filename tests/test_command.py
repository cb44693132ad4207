"""Commands as queue messages: what arrives at the writer is what the api validated."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoree import ids, limits
from memoree.command import COMMAND_VERSION, Command, from_message, needs_bytes, to_message
from memoree.errors import Code, MemoreeError
from memoree.operations.call import decode, validate

CONTEXT = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}


def sent(op: str, input: dict[str, Any], *, context: dict[str, Any] | None = None) -> tuple[Command, bytes]:
    """A command as an api makes it, and its message."""
    body = {"request_id": "req_1", "op": op, "idempotency_key": "k", "context": context or CONTEXT, "input": input}
    envelope = decode(json.dumps(body).encode())
    command = Command(ids.new_attempt_id(), "tenant", 3, 1_772_484_067_250, validate(envelope))
    return command, to_message(command, envelope)


def put(data: bytes, media_type: str = "text/plain") -> dict[str, Any]:
    content = {"type": "base64", "data": base64.b64encode(data).decode()}
    return {"kind": "note", "title": "t", "media_type": media_type, "content": content}


def test_a_command_arrives_as_it_was_sent() -> None:
    command, message = sent("claim.assert", {"claim_type": "fact", "statement": "cone 6"})

    assert from_message(message) == command


def test_null_members_of_free_form_input_survive_the_journey() -> None:
    provenance = {"tool": None, "nested": {"value": None}}
    command, message = sent("artifact.put", put(b"x") | {"provenance": provenance})

    assert from_message(message).call.input == command.call.input.model_copy(update={"content": _empty(message)})
    assert from_message(message).call.fingerprint == command.call.fingerprint


def _empty(message: bytes) -> Any:
    return from_message(message).call.input.content


@pytest.mark.parametrize(
    ("size", "media_type", "travels"),
    [
        (0, "text/plain", True),
        (limits.INLINE_BODY_BYTES_MAX, "application/octet-stream", True),
        (limits.INLINE_BODY_BYTES_MAX + 1, "application/octet-stream", False),
        (limits.COMMAND_TEXT_BYTES_MAX, "text/plain", True),
        (limits.COMMAND_TEXT_BYTES_MAX + 1, "text/plain", False),
    ],
)
def test_content_travels_by_value_only_where_the_writer_needs_it(size: int, media_type: str, travels: bool) -> None:
    command, message = sent("artifact.put", put(b"a" * size, media_type))
    arrived = from_message(message).call.content

    assert arrived is not None and command.call.content is not None
    assert (arrived.digest, arrived.size) == (command.call.content.digest, size)
    assert arrived.data == (b"a" * size if travels else None)
    assert needs_bytes(arrived, command.call.input) == (not travels and media_type == "text/plain")


def test_a_command_of_a_later_version_is_a_matter_of_upgrading() -> None:
    _, message = sent("claim.assert", {"claim_type": "fact", "statement": "cone 6"})
    later = orjson.loads(message) | {"version": COMMAND_VERSION + 1}

    with pytest.raises(MemoreeError) as refused:
        from_message(orjson.dumps(later))
    assert refused.value.code is Code.CONFIG_ERROR


ID = st.text(st.sampled_from("a\0:1"), min_size=1, max_size=4).filter(lambda text: bool(text.strip()))


def namespace(workspace: str, project: str, task: str | None) -> str:
    context = {"workspace_id": workspace, "project_id": project} | ({"task_id": task} if task is not None else {})
    command, _ = sent("claim.assert", {"claim_type": "fact", "statement": "s"}, context=context)
    return command.call.idempotency_namespaced


@given(st.tuples(ID, ID, st.none() | ID), st.tuples(ID, ID, st.none() | ID))
def test_keys_of_two_contexts_never_meet_whatever_their_ids_hold(
    first: tuple[str, str, str | None], second: tuple[str, str, str | None]
) -> None:
    assert (namespace(*first) == namespace(*second)) == (first == second)


def test_ids_that_hold_the_separator_do_not_shift_into_each_other() -> None:
    contexts = [("a\0b", "c", None), ("a", "b\0c", None), ("a", "b", "c"), ("a", "b\0c\0", None), ("a\0", "b", "c")]

    for one, other in itertools.combinations(contexts, 2):
        assert namespace(*one) != namespace(*other)
