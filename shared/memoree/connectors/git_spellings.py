"""Which path of a repository stands for an external id, where several are spellings of one name.

The state knows the path that was delivered by its hint, and those that were not by their reminders.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, unquote_to_bytes

from memoree.connectors import Reminder
from memoree.connectors.git_history import TreeFile
from memoree.connectors.names import external_id_of
from memoree.connectors.state import State


@dataclass(frozen=True, slots=True)
class Spelled:
    """A file as a commit made it, or made it the one that counts; `observed_at` is the instant of that commit."""

    path: str
    blob_id: str
    commit_id: str
    observed_at: str

    @property
    def external_id(self) -> str:
        return external_id_of(self.path)

    @property
    def hint(self) -> str:
        """What the item is recognised by: its bytes, and its spelling where that is not the external id."""
        return self.blob_id if self.path == self.external_id else f"{self.blob_id} {reminder_name(self.path)}"

    @property
    def reminder(self) -> Reminder:
        return Reminder(reminder_name(self.path), f"{self.blob_id} {self.commit_id} {self.observed_at}")

    @classmethod
    def reminded(cls, reminder: Reminder) -> Self:
        return cls(_path(reminder.name), *reminder.value.split(" "))


def left_over(state: State) -> list[Spelled]:
    """What was skipped, in the order of the bytes of the paths."""
    found = (Spelled.reminded(Reminder(name, value)) for name, value in state.reminders().items())
    return sorted(found, key=lambda spelled: os.fsencode(spelled.path))


def reminder_name(path: str) -> str:
    return quote(os.fsencode(path))


def _path(name: str) -> str:
    return os.fsdecode(unquote_to_bytes(name))


class Spellings:
    """What stands for the external ids, ahead of the state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._held: dict[str, tuple[str, str] | None] = {}
        self._left: dict[str, dict[str, str]] = {}
        self.refresh()

    def __len__(self) -> int:
        """Of how many external ids the state may not know what became of them."""
        return len(self._held)

    def refresh(self) -> None:
        """The state knows everything by now."""
        self._held, self._left = {}, {}
        for spelled in left_over(self._state):
            self.leave(spelled)

    def holder(self, external_id: str) -> tuple[str, str] | None:
        """Path and blob of what was delivered."""
        if external_id in self._held:
            return self._held[external_id]
        sent = self._state.sent(external_id)
        if sent is None or sent.hint is None:
            return None
        blob_id, _, name = sent.hint.partition(" ")
        return (_path(name) if name else external_id, blob_id)

    def after(self, external_id: str, files: Iterable[TreeFile]) -> dict[str, str]:
        """Path and blob of every spelling that is there once these files have changed, the first one first."""
        holder = self.holder(external_id)
        there = {**(dict([holder]) if holder else {}), **self._left.get(external_id, {})}
        for file in files:
            there.pop(file.path, None)
            if file.blob_id is not None:
                there[file.path] = file.blob_id
        return {path: there[path] for path in sorted(there, key=os.fsencode)}

    def hold(self, spelled: Spelled) -> None:
        """It was delivered."""
        self._held[spelled.external_id] = (spelled.path, spelled.blob_id)
        self.drop(spelled.path)

    def leave(self, spelled: Spelled) -> None:
        """It was skipped."""
        self._left.setdefault(spelled.external_id, {})[spelled.path] = spelled.blob_id

    def drop(self, path: str) -> None:
        """Nobody needs to be reminded of it."""
        self._left.get(external_id_of(path), {}).pop(path, None)

    def withdraw(self, external_id: str) -> None:
        self._held[external_id] = None
