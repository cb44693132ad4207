"""Between the names of the model and what a service calls the same things.

A name is learnt at its first appearance in an answer: from then on it must stand for the same id everywhere. Ids must
have the form of §5.1 and be new, instants must follow the service's clock without ever going back, and ordinals must
keep their order.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from .entities import Ordinal
from .model import MAYBE_TEXT, TEXT, Including, Ranked, Unordered

ID_KINDS = ("art", "arev", "clm", "crev", "rel", "ccase", "src", "proj", "fb")
FORMS = {kind: re.compile(rf"{kind}_[0-9A-HJKMNP-TV-Z]{{26}}") for kind in ID_KINDS} | {
    "at": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3}(\d{3}(\d{3})?)?)?Z", re.ASCII),
    "fingerprint": re.compile(r"[0-9a-f]{64}"),
}
NAME = re.compile(rf"\b({'|'.join(FORMS)})~[\w-]+")


class Mismatch(Exception):
    """An answer that is not the expected one, and where they part."""


class Names:
    def __init__(self) -> None:
        self._known: dict[str | Ordinal, Any] = {}
        self._clock: tuple[datetime, datetime] | None = None

    def see_clock(self, now: datetime) -> None:
        """What the service's clock says from now on, for a test that holds that clock."""
        latest = max(now, self._clock[1]) if self._clock is not None else now
        self._clock = now, latest

    def translated(self, value: Any) -> Any:
        """The value as the service knows it. A name it never used stays as it is, and is an unknown id there."""
        if isinstance(value, dict):
            return {name: self.translated(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.translated(item) for item in value]
        if isinstance(value, Ordinal):
            return self._known.get(value, int(value))
        if isinstance(value, str):
            return NAME.sub(lambda name: str(self._known.get(name[0], name[0])), value)
        return value

    def match(self, expected: Any, actual: Any, where: str = "") -> None:
        """Raises `Mismatch` unless the service's answer is the model's, name for name."""
        if isinstance(expected, dict):
            self._match_objects(expected, actual, where)
        elif isinstance(expected, Unordered):
            self._match_unordered(expected, actual, where)
        elif isinstance(expected, Ranked):
            self.match(self._ranking(expected), actual, where)
        elif isinstance(expected, list):
            _require(isinstance(actual, list) and len(expected) == len(actual), where, expected, actual)
            for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
                self.match(one, other, f"{where}[{index}]")
        elif isinstance(expected, Ordinal):
            self._learn_ordinal(expected, actual, where)
        elif expected in (TEXT, MAYBE_TEXT):
            _require(isinstance(actual, str) and bool(actual.strip()), where, "some text", actual)
        elif isinstance(expected, str) and NAME.fullmatch(expected) and expected not in self._known:
            self._learn(expected, actual, where)
        else:
            wanted = self.translated(expected)
            same = wanted == actual and isinstance(wanted, bool) is isinstance(actual, bool)
            _require(same, where, f"{wanted!r} ({expected!r})", actual)

    def _match_objects(self, expected: dict[str, Any], actual: Any, where: str) -> None:
        _require(isinstance(actual, dict), where, expected, actual)
        owed = {name for name, value in expected.items() if value != MAYBE_TEXT}
        surplus = set() if isinstance(expected, Including) else actual.keys() - expected.keys()
        _require(owed <= actual.keys() and not surplus, where, sorted(expected), actual)
        for name in expected.keys() & actual.keys():
            self.match(expected[name], actual[name], f"{where}.{name}")

    def _ranking(self, expected: Ranked) -> list[Any]:
        by_id = sorted(expected, key=lambda item: self.translated(item[expected.id]))
        latest_first = sorted(by_id, key=lambda item: _moment(self.translated(item[expected.instant])), reverse=True)
        return latest_first[: expected.limit]

    def _match_unordered(self, expected: Unordered, actual: Any, where: str) -> None:
        """Items are told apart by their ids, which are all known by the time sets are compared."""

        def identity(item: Any) -> tuple[str, ...]:
            return item["entity_type"], item["entity_id"], item["revision_id"]

        wanted = {identity(self.translated(item)): item for item in expected}
        got = {identity(item): item for item in actual}
        _require(wanted.keys() == got.keys(), where, sorted(wanted), sorted(got))
        for key, item in wanted.items():
            self.match(item, got[key], f"{where}{key}")

    def _learn(self, name: str, actual: Any, where: str) -> None:
        kind = name.split("~", 1)[0]
        _require(isinstance(actual, str) and FORMS[kind].fullmatch(actual) is not None, where, f"a new {kind}", actual)
        if kind == "at":
            self._check_clock(_moment(actual), where)
            self._check_order(name, actual, where)
        else:
            _require(actual not in self._known.values(), where, f"a new {kind}", f"{actual}, which is known")
        self._known[name] = actual

    def _check_clock(self, moment: datetime, where: str) -> None:
        """After the clock was set back, a writer goes on from the latest time it has seen."""
        if self._clock is not None:
            now, latest = self._clock
            _require(now <= moment <= latest, where, f"an instant from {now} to {latest}", moment)

    def _check_order(self, name: str, actual: str, where: str) -> None:
        number, moment = _commit(name), _moment(actual)
        for other, value in self._known.items():
            if isinstance(other, str) and other.startswith("at~"):
                there = _moment(value)
                in_order = there <= moment if _commit(other) < number else moment <= there
                _require(in_order, where, f"an instant in the order of commits; {other} was {value}", actual)

    def _learn_ordinal(self, place: Ordinal, actual: Any, where: str) -> None:
        _require(type(actual) is int and actual > 0, where, "a positive integer", actual)
        for other, value in self._known.items():
            if isinstance(other, Ordinal):
                in_order = (place > other) - (place < other) == (actual > value) - (actual < value)
                _require(in_order, where, f"a number in order; place {int(other)} was {value}", actual)
        self._known[place] = actual


def _moment(shown: str) -> datetime:
    return datetime.fromisoformat(shown)


def _commit(name: str) -> int:
    return int(name.removeprefix("at~"))


def _require(holds: bool, where: str, expected: Any, actual: Any) -> None:
    if not holds:
        raise Mismatch(f"at {where or 'the top'}\n  expected {expected}\n  got      {actual}")
