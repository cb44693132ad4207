"""A bundle's shareable part, written as a bundle of its own (OKF contract §8.1)."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from memoree.errors import Code, MemoreeError, invalid, shown
from memoree.ids import new_ulid
from memoree.okf import editing
from memoree.okf.dialect import Dialect
from memoree.okf.ids import SUFFIX, InvalidId, path_of, safe_id
from memoree.okf.node import INBOX, MIRROR, SECRET, Node, parse
from memoree.okf.relations import SUPERSEDES, links, resolved

Threshold = Literal["public", "internal"]
THRESHOLDS: tuple[str, ...] = get_args(Threshold)
RANKS = {"public": 0, "internal": 1, "secret": 2, "mirror": 3}
UNKNOWN_RANK = 1
OKF_VERSION = "0.1"
INDEX, LOG = "index.md", "log.md"
NEVER = frozenset((SECRET, MIRROR, INBOX))
"""Folders at the top, whatever their case."""
EXISTED_MAX = 3

_VERSION_LINE = f'okf_version: "{OKF_VERSION}"'
_FRONT = re.compile(
    r"(?P<before>\ufeff?---[ \t]*(?P<end>\r?\n))(?P<fields>(?:.*?\r?\n)??)---[ \t]*(?:\r?\n|$)", re.DOTALL
)
_VERSION = re.compile(r"^okf_version:[^\r\n]*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Export:
    """`files` are (path, bytes) in the order of paths; `left_out` counts files by the reason; `warnings` tell of links
    and relations that lead to what is not in it."""

    files: Sequence[tuple[str, bytes]]
    left_out: Mapping[str, int]
    warnings: Sequence[str]


def visibility_rank(written: str) -> int:
    """0 for what everybody may see, more for what fewer may."""
    return RANKS.get(written.strip().lower(), UNKNOWN_RANK)


def with_okf_version(text: str) -> str:
    """The text of an index whose front matter says which OKF it follows, and says it once."""
    match = _FRONT.match(text)
    if match is None:
        return f"---\n{_VERSION_LINE}\n---\n\n{text}"
    start, end = match.span("fields")
    fields, count = _VERSION.subn(_VERSION_LINE, match["fields"], count=1)
    if not count:
        fields = f"{_VERSION_LINE}{match['end']}{match['fields']}"
    return f"{text[:start]}{fields}{text[end:]}"


def export(
    files: Iterable[tuple[str, bytes]],
    dialect: Dialect = Dialect.SERVICE,
    *,
    threshold: str = "internal",
    gbrain: bool = False,
) -> Export:
    """What of (path, bytes) may leave. Every file is as it was, but the index at the top, which tells its version; with
    `gbrain`, nodes are written in that program's form, and something is lost. Raises `INVALID_REQUEST` for another
    threshold than `public` and `internal`."""
    if threshold not in THRESHOLDS:
        invalid(f"visibility: one of {', '.join(THRESHOLDS)}, not {shown(threshold)}")
    reasons: Counter[str] = Counter()
    kept: dict[str, tuple[Node, bytes]] = {}
    top: dict[str, tuple[Node, bytes]] = {}
    for path, data in files:
        node = parse(path.removesuffix(SUFFIX), data, dialect)
        reason = _reason_to_keep(path, node, threshold)
        if reason is None:
            kept[path] = (node, data)
        elif path in (INDEX, LOG) and not node.is_secret:
            top[path] = (node, data)
        else:
            reasons[reason] += 1
    known = {*kept, INDEX, LOG}
    warnings = [told for node, _ in (*top.values(), *kept.values()) for told in _dangling(node, known)]
    written = {path: _gbrain(node, known) if gbrain else data for path, (node, data) in kept.items()}
    written[INDEX] = _index(top[INDEX][1] if INDEX in top else None, list(kept))
    written[LOG] = top[LOG][1] if LOG in top else f"---\n{_VERSION_LINE}\n---\n\n# Log\n".encode()
    return Export(sorted(written.items()), dict(sorted(reasons.items())), warnings)


def check_target(target: Path, bundle: Path | None = None) -> Path:
    """Where to write, fully told. Raises `INVALID_REQUEST` for what is there and no empty directory, and for a place
    inside the bundle, which would hold itself from then on."""
    try:
        place = target.resolve()
        if place.exists() and not place.is_dir():
            invalid(f"{shown(str(target))} is not a directory")
        existing = [entry.name for entry in place.iterdir()] if place.is_dir() else []
    except (OSError, RuntimeError, ValueError) as error:
        invalid(f"{shown(str(target))} cannot be written to: {getattr(error, 'strerror', None) or error}")
    if existing:
        some = ", ".join(shown(name) for name in sorted(existing)[:EXISTED_MAX])
        invalid(f"{shown(str(target))} is not empty: it holds {some}")
    if bundle is not None and place.is_relative_to(bundle.resolve()):
        invalid(f"{shown(str(target))} lies inside the bundle")
    return place


def write(files: Sequence[tuple[str, bytes]], place: Path) -> None:
    """Write all files into a directory that `check_target` let through, or none. Raises `INTERNAL_ERROR` when the disk
    does not take them."""
    was_there = place.is_dir()
    stage = place / f".memoree-{new_ulid()}.tmp"
    moved: list[Path] = []
    try:
        stage.mkdir(parents=True)
        for path, data in files:
            at = stage / path
            at.parent.mkdir(parents=True, exist_ok=True)
            with at.open("xb") as file:  # two names that are one on this file system are refused, not merged
                file.write(data)
        for entry in sorted(stage.iterdir()):
            to = place / entry.name
            if to.exists():
                raise FileExistsError(17, "something was written there meanwhile")
            moved.append(entry.rename(to))
    except OSError as error:
        for each in moved:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        raise MemoreeError(Code.INTERNAL_ERROR, f"nothing was exported: {error.strerror or error}") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if not moved and not was_there and place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def _reason_to_keep(path: str, node: Node, threshold: str) -> str | None:
    """Why a file stays; `None` for one that may go."""
    top = path.split("/")[0].lower() if "/" in path else ""
    if node.is_secret or top == SECRET:
        return "secret"
    if top in NEVER:
        return top
    if node.is_reserved:
        return "reserved name"
    try:
        if safe_id(path) != node.id or not path.endswith(SUFFIX):
            return "unsafe path"
    except InvalidId:
        return "unsafe path"
    return None if visibility_rank(node.visibility) <= RANKS[threshold] else "visibility"


def _dangling(node: Node, known: set[str]) -> Iterator[str]:
    """Everything that a file points at and that does not come along."""
    folder = node.id.rpartition("/")[0]
    pointed = [(f" [{key}]", target, resolved(target)) for key, target in node.relations]
    pointed += [(f" [{SUPERSEDES}]", target, resolved(target)) for target in node.supersedes]
    pointed += [("", target, resolved(target, folder=folder)) for target in links(node.body)]
    for key, target, path in dict.fromkeys(pointed):
        if path not in known:
            yield f"{node.id}{key} → {target} is not in the export"


def _index(data: bytes | None, paths: Sequence[str]) -> bytes:
    if data is not None:
        text = data.decode(errors="surrogateescape")
        return with_okf_version(text).encode(errors="surrogateescape")
    listed = "".join(f"- [{path.removesuffix(SUFFIX)}](</{path}>)\n" for path in sorted(paths))
    return with_okf_version(f"# Index\n\n{listed}").encode()


def _gbrain(node: Node, known: set[str]) -> bytes:
    fields: list[tuple[str, str | list[str]]] = [("type", node.type), ("title", node.title or node.id)]
    fields.append(("tags", node.tags))
    head = "\n".join(editing.line(name, _one_line(value)) for name, value in fields)
    told = " · ".join(filter(None, (node.text("timestamp"), ", ".join(node.entries("source")))))
    near = [path for _, target in node.relations if (path := resolved(target)) in known and path is not None]
    related = ", ".join(
        f"[{path.removesuffix(SUFFIX)}]({path_of(path.removesuffix(SUFFIX))})" for path in dict.fromkeys(near)
    )
    parts = [f"---\n{head}\n---\n", f"## Compiled truth\n\n{node.body.strip()}\n"]
    parts.append(f"## Timeline\n\n- {told}\n" if told else "## Timeline\n")
    parts += [f"Related: {related}\n"] if related else []
    return "\n".join(parts).encode()


def _one_line(value: str | list[str]) -> str | list[str]:
    return " ".join(value.split()) if isinstance(value, str) else [" ".join(each.split()) for each in value]
