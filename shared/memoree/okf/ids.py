"""Names of nodes and agents, and the guard before every name that a caller sends (OKF contract §1.6)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from memoree.okf.dialect import Dialect

SUFFIX = ".md"
NAME_BYTES_MAX = 255
DEFAULT_AGENT = "mcp"
_REFUSED = re.compile(r"[\x00-\x1f\x7f\\]")
_DRIVE = re.compile(r"[A-Za-z]:")


class InvalidId(ValueError):
    """A name that could lead out of a bundle, or is none."""


def safe_id(given: str, dialect: Dialect = Dialect.SERVICE) -> str:
    """The id that a caller means by `x/y`, `/x/y` or `x/y.md`. Raises `InvalidId`; looks at no file."""
    name = given.strip().lstrip("/").removesuffix(SUFFIX)
    if any(segment in ("", ".", "..") for segment in name.split("/")):
        raise InvalidId("it must be a path inside the bundle, without empty, '.' and '..' parts")
    if dialect is Dialect.SERVICE:
        if _REFUSED.search(name) or _DRIVE.match(name):
            raise InvalidId("it holds a backslash, a drive letter or a control character")
        if any(
            len(segment.encode(errors="surrogatepass")) > NAME_BYTES_MAX for segment in f"{name}{SUFFIX}".split("/")
        ):
            raise InvalidId(f"a part of it has more than {NAME_BYTES_MAX} bytes")
    return name


def path_of(node_id: str) -> str:
    """The bundle path: how a node is cited."""
    return f"/{node_id}{SUFFIX}"


def id_of(path: str) -> str:
    """Of a path as relations and links write it."""
    return path.removeprefix("/").removesuffix(SUFFIX)


def matching(given: str, ids: Iterable[str]) -> list[str]:
    """The ids that a caller may mean: the one that is equal, else all that end in `/` and it, in their order."""
    name = given.removesuffix(SUFFIX)
    known = list(ids)
    return [name] if name in known else [each for each in known if each.endswith(f"/{name}")]


def agent_name(given: str | None) -> str:
    """The name an agent's inbox goes by."""
    return re.sub(r"-+", "-", re.sub(r"[^a-z0-9-]+", "-", (given or "").strip().lower())).strip("-") or DEFAULT_AGENT
