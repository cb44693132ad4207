from __future__ import annotations

from pathlib import Path

import pytest

from memoree.connectors import Gone, Item, Reached, Unchanged
from memoree.connectors.state import Sent, State, state_path
from memoree.errors import Code, MemoreeError


def item(external_id: str, revision: str, hint: str | None = None) -> Item:
    return Item(external_id, revision, "title", "text/plain", b"", hint=hint)


def test_what_was_recorded_is_there_in_the_next_process(tmp_path: Path) -> None:
    with State.open(tmp_path / "deep" / "state") as state:
        state.record([item("a", "1"), item("b", "1"), Reached("c-1", {"at": "now"})])
        state.record([item("a", "2", "h"), Gone("b", "gone"), Unchanged("nobody", "h")])

    with State.open(tmp_path / "deep" / "state") as state:
        assert (state.sent("a"), state.sent("b"), state.sent_count()) == (Sent("2", "h"), None, 1)
        assert (state.cursor, state.position("at")) == ("c-1", "now")


def test_a_scan_knows_what_it_did_not_see(tmp_path: Path) -> None:
    with State.open(tmp_path / "state") as state:
        state.record(item(name, "1") for name in ("a", "b", "c", "d"))
        state.begin_scan()
        assert state.saw_nothing_of() == 4
        assert state.see("b")
        assert not state.see("b")
        gone = []
        for external_id in state.unseen():
            gone.append(external_id)
            state.record([Gone(external_id, "gone")])

    assert gone == ["a", "c", "d"]


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    with State.open(tmp_path / "state"), pytest.raises(MemoreeError) as refused:
        State.open(tmp_path / "state")

    assert refused.value.code is Code.CONFIG_ERROR
    assert "another run" in refused.value.message


@pytest.mark.parametrize("content", [b"not a database, and longer than a header is" * 100, None])
def test_a_state_that_cannot_be_used_is_refused_and_left_alone(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "state"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)

    with pytest.raises(MemoreeError) as refused:
        State.open(path)

    assert refused.value.code is Code.CONFIG_ERROR
    assert content is None or path.read_bytes() == content


def test_a_rehearsal_leaves_no_trace(tmp_path: Path) -> None:
    with State.open(tmp_path / "state") as state:
        state.record([item("a", "1")])
        with state.rehearsed():
            state.forget()
            state.record([item("b", "1"), Reached("c-1")])
            assert state.sent("b") is not None
        assert (state.sent("a"), state.sent("b"), state.cursor) == (Sent("1", None), None, None)


def test_forgetting_keeps_what_source_it_is(tmp_path: Path) -> None:
    with State.open(tmp_path / "state") as state:
        state.record([item("a", "1"), Reached("c-1", {"at": "now"})])
        state.remember("locator", "here")
        state.forget()

        assert (state.sent_count(), state.cursor, state.position("at"), state.recall("locator")) == (
            0,
            None,
            None,
            "here",
        )


def test_the_state_of_another_destination_is_another_file(tmp_path: Path) -> None:
    paths = {
        state_path(tmp_path, *names)
        for names in (("q", "t", "s"), ("q", "t", "s2"), ("q", "t2", "s"), ("q", "ts", ""), ("q2", "t", "s"))
    }

    assert len(paths) == 5


def test_a_state_is_private(tmp_path: Path) -> None:
    with State.open(tmp_path / "state"):
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600
