"""Rules of a sound store, each a statement that finds the rows that break it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apsw

from memoree.verification.issue import Issue, Kind


@dataclass(frozen=True, slots=True)
class Rule:
    """`sql` gives a row per breach: the id of what is damaged, then the values that `says` has places for."""

    kind: Kind
    says: str
    sql: str


def breaches(db: apsw.Connection, rules: Iterable[Rule]) -> Iterator[Issue]:
    """What breaks the rules, read as it is asked for."""
    for rule in rules:
        for entity, *values in db.execute(rule.sql):
            yield Issue(rule.kind, str(entity), rule.says.format(*values))
