"""The schemas of an OpenAPI document, gathered under one roof with their references moved along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

PREFIX = "#/components/schemas/"
_OWN_DEFINITIONS = "#/$defs/"


class Components:
    """Stand-alone schemas by name. What they define for themselves is placed beside them under its own name; where a
    caller sends one thing and is answered another of the same name, the answer's is called `…Answer`."""

    def __init__(self) -> None:
        self.schemas: dict[str, Any] = {}
        self._sent: set[str] = set()

    def sent(self, name: str, root: Mapping[str, Any]) -> Json:
        """Take in what a caller sends, before anything that is answered; returns a reference to it."""
        self._sent.update(root.get("$defs", ()))
        return self._add(name, root, {})

    def answered(self, name: str, root: Mapping[str, Any]) -> Json:
        """Take in what an answer holds; returns a reference to it."""
        own = self._sent.intersection(root.get("$defs", ()))
        return self._add(name, root, {definition: f"{definition}Answer" for definition in own})

    def _add(self, name: str, root: Mapping[str, Any], renamed: Mapping[str, str]) -> Json:
        for definition, schema in root.get("$defs", {}).items():
            self._place(renamed.get(definition, definition), _moved(schema, renamed))
        self._place(name, {key: _moved(value, renamed) for key, value in root.items() if key not in _OF_A_ROOT})
        return ref(name)

    def _place(self, name: str, schema: Json) -> None:
        placed = self.schemas.setdefault(name, schema)
        assert placed == schema, f"two schemas are called {name}"


_OF_A_ROOT = ("$schema", "$defs")


def ref(name: str) -> Json:
    return {"$ref": PREFIX + name}


def _moved(schema: Any, renamed: Mapping[str, str]) -> Any:
    if isinstance(schema, Mapping):
        return {
            key: _target(value, renamed) if key == "$ref" else _moved(value, renamed) for key, value in schema.items()
        }
    return [_moved(item, renamed) for item in schema] if isinstance(schema, list) else schema


def _target(reference: str, renamed: Mapping[str, str]) -> str:
    if not reference.startswith(_OWN_DEFINITIONS):
        return reference
    definition = reference.removeprefix(_OWN_DEFINITIONS)
    return PREFIX + renamed.get(definition, definition)
