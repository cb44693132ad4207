"""The tables that an export carries, row by row."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import apsw
import orjson

from memoree.database.connection import scalar
from memoree.errors import Code, MemoreeError, shown
from memoree.transfer.archive import PART_BYTES_TARGET

DERIVED = frozenset({"derivations", "words"})
"""Made again from the rest, as the full-text indexes are."""
LOCAL = frozenset({"attempts", "condemned_blobs", "meta"})
"""Of this copy of the store alone: outcomes of single attempts, collections under way, counters."""

_TABLES = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict ORDER BY name"
_COLUMNS = "SELECT name, type, pk FROM pragma_table_info(?) ORDER BY cid"


@dataclass(frozen=True, slots=True)
class Table:
    """`keys` are the columns of the primary key, in its order."""

    name: str
    columns: tuple[str, ...]
    binary: frozenset[str]
    keys: tuple[str, ...]

    def count(self, db: apsw.Connection) -> int:
        return int(scalar(db, f'SELECT count(*) FROM "{self.name}"'))  # noqa: S608 - a name of the schema

    def parts(self, db: apsw.Connection) -> Iterator[bytes]:
        """All rows in the order of their keys, as JSON lines, a bounded number of bytes at a time."""
        part = bytearray()
        for row in db.execute(self._select):
            part += orjson.dumps(self._to_wire(row), option=orjson.OPT_APPEND_NEWLINE)
            if len(part) >= PART_BYTES_TARGET:
                yield bytes(part)
                part.clear()
        if part:
            yield bytes(part)

    def insert(self, db: apsw.Connection, rows: Iterable[Mapping[str, object]]) -> int:
        """Returns how many there were. Raises `INVALID_REQUEST` for rows that are none of this table's."""
        count = 0
        try:
            for row in rows:
                db.execute(self._insert, self._from_wire(row))
                count += 1
        except (apsw.ConstraintError, apsw.MismatchError, OverflowError, ValueError, TypeError, KeyError) as error:
            raise MemoreeError(
                Code.INVALID_REQUEST, f"row {count + 1} of {self.name} in the export cannot be stored: {error!r}"
            ) from error
        return count

    @property
    def _select(self) -> str:
        return f"SELECT {_names(self.columns)} FROM {_names([self.name])} ORDER BY {_names(self.keys)}"  # noqa: S608

    @property
    def _insert(self) -> str:
        places = ", ".join("?" * len(self.columns))
        return f"INSERT INTO {_names([self.name])} ({_names(self.columns)}) VALUES ({places})"  # noqa: S608

    def _to_wire(self, row: tuple[Any, ...]) -> dict[str, Any]:
        return {
            name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for name, value in zip(self.columns, row, strict=True)
        }

    def _from_wire(self, row: Mapping[str, object]) -> tuple[Any, ...]:
        if row.keys() != set(self.columns):
            raise KeyError(f"columns {sorted(row)}")
        return tuple(self._value(name, row[name]) for name in self.columns)

    def _value(self, name: str, value: Any) -> Any:
        return base64.b64decode(value, validate=True) if name in self.binary and value is not None else value


def exported_tables(db: apsw.Connection) -> list[Table]:
    """Every table of the schema that belongs into an export, in the order of their names."""
    names = [str(name) for (name,) in db.execute(_TABLES)]
    return [_table(db, name) for name in names if name not in DERIVED | LOCAL]


def table_named(db: apsw.Connection, name: str) -> Table:
    """Raises `INVALID_REQUEST` for one that no export has."""
    for table in exported_tables(db):
        if table.name == name:
            return table
    raise MemoreeError(Code.INVALID_REQUEST, f"no export has a table {shown(name)}")


def _table(db: apsw.Connection, name: str) -> Table:
    columns = [(str(column), str(kind), int(str(pk))) for column, kind, pk in db.execute(_COLUMNS, (name,))]
    keys = sorted((pk, column) for column, _, pk in columns if pk)
    return Table(
        name,
        tuple(column for column, _, _ in columns),
        frozenset(column for column, kind, _ in columns if kind == "BLOB"),
        tuple(column for _, column in keys),
    )


def _names(names: Iterable[str]) -> str:
    """Identifiers of the schema, quoted."""
    return ", ".join(f'"{name}"' for name in names)
