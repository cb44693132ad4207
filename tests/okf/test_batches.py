"""Many commands at once: each has its own outcome, in its place, and none is lost or done twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from memoree.client import batches
from memoree.client.batches import Command, EndpointDoor
from memoree.client.request import Outgoing
from memoree.errors import Code, MemoreeError

from .stored import CONTEXT, Store, opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "data") as found:
        yield found


def put(title: str) -> Command:
    content = {"type": "text", "data": f"text of {title}"}
    return Command("artifact.put", {"kind": "note", "title": title, "content": content})


def test_a_refusal_in_a_batch_is_told_in_its_place_and_harms_no_other(store: Store) -> None:
    before = store.commit_seq
    commands = [put("one"), Command("artifact.forget", {"artifact_id": "art_none", "reason": "x"}), put("two")]
    commands += [Command("artifact.put", {"kind": "note"}), put("three")]
    outcomes = store.door.tell(commands)
    told = [outcome.code if isinstance(outcome, MemoreeError) else outcome["title"] for outcome in outcomes]
    assert told == ["one", Code.NOT_FOUND, "two", Code.INVALID_REQUEST, "three"]
    assert store.commit_seq == before + 3


def test_a_batch_is_one_group_commit(store: Store) -> None:
    def counted() -> int:
        return store.service.snapshot(lambda db: None)[1].batch

    before = counted()
    assert len(store.door.tell([put(f"n{at}") for at in range(50)])) == 50
    assert counted() == before + 1


class Hesitant:
    """A server whose writer takes its time: every command is pending at first, and then applied once."""

    def __init__(self, store: Store) -> None:
        self._service = store.service
        self.bodies: list[bytes] = []

    def exchange(self, request: Outgoing) -> bytes:
        is_new = request.body not in self.bodies
        self.bodies.append(request.body)
        if not is_new:
            return self._service.call_bytes(request.body)
        error = MemoreeError(Code.WRITE_PENDING, "later").to_wire()
        return orjson.dumps({"v": 1, "request_id": request.request_id, "ok": False, "error": error, "warnings": []})


def test_what_is_pending_is_asked_for_by_the_identical_request(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PAUSE_SECONDS", 0.0)
    server = Hesitant(store)
    outcomes: list[Any] = EndpointDoor(server, lambda: CONTEXT).tell([put("one"), put("two")])
    assert [outcome["title"] for outcome in outcomes] == ["one", "two"]
    assert server.bodies[:2] == server.bodies[2:]
    assert store.rows("SELECT count(*) FROM artifacts") == [(2,)]
