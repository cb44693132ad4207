from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.support import Outbox, Runs, content_of
from memoree import limits
from memoree.connectors.conversation import ConversationConnector
from memoree.errors import Code, MemoreeError

TURNS: list[dict[str, Any]] = [
    {"session": "s1", "speaker": "ada", "text": "Which cone?", "at": "2026-03-02T20:40:00+01:00", "id": 1},
    {"session": "s2", "speaker": "bo", "text": "Hello"},
    {"session": "s1", "speaker": "bo", "text": "Cone 6,\nin the café kiln.", "id": 2, "mood": "calm"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "chat.jsonl"


def write(file: Path, turns: list[Any], *, mode: str = "w") -> None:
    with file.open(mode) as opened:
        opened.writelines(json.dumps(turn) + "\n" for turn in turns)


def spans(outbox: Outbox, external_id: str) -> list[tuple[str, bytes]]:
    """Of every turn, who spoke and the bytes that its span cites."""
    item = outbox.one(external_id)
    content = content_of(item)
    turns = item.provenance["turns"]
    return [(turn["speaker"], content[turn["start_byte"] : turn["end_byte"]]) for turn in turns]


@pytest.mark.proves("operations-61")
def test_every_session_is_an_episode_with_the_spans_of_its_turns(file: Path, runs: Runs) -> None:
    write(file, TURNS)

    _, outbox = runs.run(ConversationConnector(file))

    assert outbox.ids() == ["s1", "s2"]
    episode = outbox.one("s1")
    assert content_of(episode).decode() == "ada: Which cone?\n\nbo: Cone 6,\nin the café kiln.\n\n"
    assert spans(outbox, "s1") == [("ada", b"Which cone?"), ("bo", "Cone 6,\nin the café kiln.".encode())]
    assert episode.provenance["turns"][0]["at"] == "2026-03-02T19:40:00Z"
    assert "at" not in episode.provenance["turns"][1]
    assert (episode.title, episode.media_type) == ("s1: Which cone?", "text/plain; charset=utf-8")


def test_turns_that_are_added_make_one_new_revision_of_their_session_only(file: Path, runs: Runs) -> None:
    write(file, TURNS)
    _, before = runs.run(ConversationConnector(file))
    write(file, [{"session": "s1", "speaker": "ada", "text": "Thanks"}], mode="a")

    _, after = runs.run(ConversationConnector(file))

    assert after.ids() == ["s1"]
    assert content_of(after.one("s1")).startswith(content_of(before.one("s1")))
    assert runs.run(ConversationConnector(file))[1].messages == []


def test_a_turn_with_an_id_that_was_there_replaces_it_where_it_stands(file: Path, runs: Runs) -> None:
    write(file, [*TURNS, {"session": "s1", "speaker": "ada", "text": "Which kiln?", "id": 1}])

    _, outbox = runs.run(ConversationConnector(file))

    assert spans(outbox, "s1") == [("ada", b"Which kiln?"), ("bo", "Cone 6,\nin the café kiln.".encode())]


@pytest.mark.proves("operations-61")
def test_a_corrected_speaker_is_a_new_revision_although_no_word_changed(file: Path, runs: Runs) -> None:
    write(file, [{"session": "s1", "speaker": "ada", "text": "Hello", "at": "2026-03-02T20:40:00Z"}])
    runs.run(ConversationConnector(file))
    write(file, [{"session": "s1", "speaker": "ada", "text": "Hello", "at": "2026-03-02T20:41:00Z"}])

    assert runs.run(ConversationConnector(file))[1].ids() == ["s1"]


def test_a_session_that_left_the_file_is_not_withdrawn(file: Path, runs: Runs) -> None:
    write(file, TURNS)
    runs.run(ConversationConnector(file))
    write(file, [TURNS[1]])

    assert runs.run(ConversationConnector(file))[1].messages == []


@pytest.mark.proves("fault-35")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json", "not a turn"),
        (b'{"session": "s1", "speaker": "ada", "text": "\\ud800"}', "not a turn"),
        (b'{"session": "s1", "speaker": "ada", "text": "caf\xe9"}', "not a turn"),
        (b'{"session": "s1", "speaker": "ada"}', "text: Field required"),
        (b'{"session": "s1", "speaker": "ada", "text": 7}', "text: "),
        (b'{"session": " ", "speaker": "ada", "text": "x"}', "session: must not be empty or blank"),
        (b'{"session": "s1", "speaker": "\\u0001", "text": "x"}', "speaker: names nobody"),
        (b'{"session": "s1", "speaker": "ada", "text": "x", "at": "yesterday"}', "at: not an RFC 3339"),
        (b"[" * 100_000, "not a turn"),
        (b'{"session": "s1", "speaker": "ada", "text": "' + b"x" * limits.CONVERSATION_LINE_BYTES_MAX + b'"}', "not"),
    ],
    ids=range(10),
)
def test_a_malformed_line_is_told_with_its_number_and_the_others_are_delivered(
    file: Path, runs: Runs, line: bytes, reason: str
) -> None:
    write(file, TURNS[:1])
    with file.open("ab") as opened:
        opened.write(line + b"\n")
    write(file, TURNS[1:], mode="a")

    summary, outbox = runs.run(ConversationConnector(file))

    (skipped,) = summary.skipped
    assert skipped.where == "line 2"
    assert skipped.reason.startswith(reason)
    assert [text for _, text in spans(outbox, "s1")] == [b"Which cone?", "Cone 6,\nin the café kiln.".encode()]
    assert outbox.checkpoints[0].health == "degraded"


@pytest.mark.proves("fault-35")
def test_text_of_any_characters_is_kept(file: Path, runs: Runs) -> None:
    text = "\u0000\ufffe\ufeff\u202e" + "e" + "\u0301" * 1000
    write(file, [{"session": "s\u202e1", "speaker": "ada", "text": text}])

    _, outbox = runs.run(ConversationConnector(file))

    assert spans(outbox, "s\u202e1") == [("ada", text.encode())]


@pytest.mark.proves("fault-34")
def test_two_spellings_of_one_session_are_one_episode(file: Path, runs: Runs) -> None:
    write(
        file,
        [
            {"session": "caf\u00e9", "speaker": "ada", "text": "caf\u00e9"},
            {"session": "cafe\u0301", "speaker": "ada", "text": "cafe\u0301"},
        ],
    )

    _, outbox = runs.run(ConversationConnector(file))

    assert outbox.ids() == ["caf\u00e9"]
    assert [text for _, text in spans(outbox, "caf\u00e9")] == ["caf\u00e9".encode(), "cafe\u0301".encode()]


def test_a_last_line_that_is_still_written_is_told_so(file: Path, runs: Runs) -> None:
    write(file, TURNS)
    with file.open("a") as opened:
        opened.write('{"session": "s1", "spea')

    summary, outbox = runs.run(ConversationConnector(file))

    assert summary.skipped[0].where == "line 4"
    assert summary.skipped[0].reason.endswith("may still be written")
    assert outbox.ids() == ["s1", "s2"]


def test_a_long_session_is_told_in_parts_of_which_only_the_last_one_grows(
    file: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONVERSATION_TURNS_MAX", 3)
    turns = [{"session": "s#1", "speaker": "ada", "text": f"turn {number}"} for number in range(7)]
    write(file, turns)

    _, outbox = runs.run(ConversationConnector(file))

    assert outbox.ids() == ["s%231", "s%231#2", "s%231#3"]
    assert [len(spans(outbox, external_id)) for external_id in outbox.ids()] == [3, 3, 1]
    assert outbox.one("s%231#2").title == "s#1 (part 2): turn 3"
    write(file, [{"session": "s#1", "speaker": "ada", "text": "turn 7"}], mode="a")
    assert runs.run(ConversationConnector(file))[1].ids() == ["s%231#3"]


@pytest.mark.parametrize(
    "turn",
    [
        {"session": "s", "speaker": "ada", "text": "x" * 60_000},
        {"session": "s" * 512, "speaker": "\u0002" + "y" * 4_000, "text": "x", "at": "2026-03-02T20:40:00.123456789Z"},
        {"session": "\u0001" * 511 + "s", "speaker": "ada", "text": "x"},
    ],
    ids=["long texts", "long speakers", "names that JSON escapes"],
)
def test_no_part_leaves_the_bounds_of_a_message(file: Path, runs: Runs, turn: dict[str, str]) -> None:
    write(file, [turn] * 450)

    summary, outbox = runs.run(ConversationConnector(file))

    assert summary.skipped_count == 0
    assert sum(len(item.provenance["turns"]) for item in outbox.delivered) == 450
    assert all(len(content_of(item)) <= limits.CONVERSATION_PART_BYTES_MAX for item in outbox.delivered)


def test_a_file_that_cannot_be_read_is_refused(file: Path, runs: Runs) -> None:
    with pytest.raises(MemoreeError) as refused:
        runs.run(ConversationConnector(file))

    assert refused.value.code is Code.CONFIG_ERROR
