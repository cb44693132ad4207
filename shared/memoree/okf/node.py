"""A node: one Markdown file of a bundle, as its fields say (OKF contract §1.3)."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from memoree.okf import frontmatter
from memoree.okf.dialect import Dialect
from memoree.okf.frontmatter import Fields
from memoree.okf.relations import SUPERSEDED_BY, SUPERSEDES, entries, targets

Visibility = Literal["public", "internal", "secret", "mirror"]
VISIBILITIES: tuple[str, ...] = get_args(Visibility)
DEFAULT_VISIBILITY = "internal"
_TOLD_CHARS_MAX = 40
SECRET, MIRROR, INBOX = "secret", "mirror", "inbox"
RESERVED_NAMES = frozenset(
    f"{name}.md"
    for name in (
        *("index", "log", "README", "DASHBOARD", "LICENSE", "CHANGELOG", "CONTRIBUTING", "INSTALL_FOR_AGENTS"),
        *("CLAUDE", "AGENTS", "GEMINI"),
    )
)
TIMELESS = frozenset(("Identity", "User", "EngineRule"))
"""Types whose nodes do not grow old."""


@dataclass(frozen=True, slots=True)
class Node:
    """`fields` are as written; `problem` says why they could not be read."""

    id: str
    fields: Fields
    body: str
    dialect: Dialect = Dialect.SERVICE
    has_front_matter: bool = True
    problem: str | None = None

    def text(self, name: str) -> str:
        """A field that is text; empty where it is missing or something else."""
        value = self.fields.get(name, "")
        return value if isinstance(value, str) else ""

    def entries(self, name: str) -> list[str]:
        """A field that is text or a list."""
        value = self.fields.get(name)
        return entries(value)

    @property
    def native_type(self) -> str:
        return self.text("type").strip()

    @property
    def type(self) -> str:
        """Also as a foreign schema writes it."""
        metadata = self._map("metadata")
        foreign = metadata.get("type") or metadata.get("node_type") or ""
        return self.native_type or (foreign if isinstance(foreign, str) else "")

    @property
    def native_title(self) -> str:
        return self.text("title")

    @property
    def title(self) -> str:
        """What stands for the title in lists: the title, the description, or the name."""
        return self.native_title or self.description or self.name

    @property
    def description(self) -> str:
        return self.text("description")

    @property
    def name(self) -> str:
        return self.text("name")

    @property
    def tags(self) -> list[str]:
        if self.dialect is Dialect.SERVICE:
            return self.entries("tags")
        value = self.fields.get("tags")
        return value if isinstance(value, list) else []

    @property
    def visibility(self) -> str:
        """What the file says; `internal` where it says nothing."""
        return self.text("visibility") or DEFAULT_VISIBILITY

    @property
    def is_secret(self) -> bool:
        """By its own field, or by a folder. This service hides what it cannot read, too (SEC-2, SEC-3)."""
        folders = self.id.split("/")[:-1]
        if self.dialect is Dialect.COMPAT:
            return self.visibility == SECRET or folders[:1] == [SECRET]
        if self.problem is not None or SECRET in map(_folded, folders):
            return True
        return any(stated == SECRET or stated not in VISIBILITIES for stated in self.stated_visibilities)

    @property
    def doubt(self) -> str | None:
        """Why it is hidden without having said so; `None` of a node that is plain about it."""
        if self.problem is not None:
            return self.problem
        unknown = [stated for stated in self.stated_visibilities if stated not in VISIBILITIES]
        if not unknown or SECRET in self.stated_visibilities:
            return None
        told = "no text" if unknown[0] is None else f'"{unknown[0][:_TOLD_CHARS_MAX]}"'
        return f"its visibility is {told}, and none of {', '.join(VISIBILITIES)}"

    @property
    def stated_visibilities(self) -> list[str | None]:
        """In lower case and without quotes; `None` for what is no text. Also under keys that differ by their case:
        who writes `Visibility: secret` means it."""
        written: list[object] = []
        for key, value in self.fields.items():
            if _is_visibility(key) and value != "":
                written.append(value)
            elif isinstance(value, dict):  # a foreign schema has it below `metadata`
                written += (
                    SECRET for name, each in value.items() if _is_visibility(name) and SECRET in str(each).lower()
                )
        return [value.strip().strip("\"'").lower() if isinstance(value, str) else None for value in written]

    @property
    def is_reserved(self) -> bool:
        return f"{self.id.rpartition('/')[2]}.md" in RESERVED_NAMES

    @property
    def relations(self) -> list[tuple[str, str]]:
        """(key, target) pairs as written, in order."""
        return [(key, target) for key, value in self._map("relations").items() for target in targets(value)]

    @property
    def supersedes(self) -> list[str]:
        """Targets as written. This service takes `relations.supersedes` for the same (DV-2)."""
        return self._hygiene(SUPERSEDES)

    @property
    def superseded_by(self) -> list[str]:
        return self._hygiene(SUPERSEDED_BY)

    @property
    def is_deprecated(self) -> bool:
        written = self.text("deprecated")
        return written == "true" if self.dialect is Dialect.COMPAT else written.strip().lower() == "true"

    def _hygiene(self, key: str) -> list[str]:
        named = targets(self.fields.get(key))
        if self.dialect is Dialect.SERVICE:
            named += targets(self._map("relations").get(key))
        return list(dict.fromkeys(named))

    def _map(self, name: str) -> Mapping[str, object]:
        value = self.fields.get(name)
        return value if isinstance(value, dict) else {}


def _is_visibility(key: str) -> bool:
    """Also with what is not seen between its letters."""
    return "".join(filter(str.isalnum, _folded(key))) == frontmatter.VISIBILITY


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).strip().casefold()


def parse(node_id: str, data: bytes, dialect: Dialect = Dialect.SERVICE) -> Node:
    """The node in a file; never raises. What cannot be read is hidden and told by `problem`."""
    text = data.decode(errors="replace") if dialect is Dialect.COMPAT else frontmatter.normalised(data)
    read = frontmatter.read(text, dialect)
    return Node(node_id, read.fields or {}, read.body, dialect, read.fields is not None, read.problem)
