"""Another directory's nodes, taken into a bundle: as raw notes of its inbox, or as nodes of its own (OKF contract
§8.2)."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from memoree import limits
from memoree.errors import Code, MemoreeError, shown
from memoree.ids import new_ulid
from memoree.okf import bundle, dates, editing
from memoree.okf.bundle import File, Findings
from memoree.okf.dialect import Dialect
from memoree.okf.ids import SUFFIX, InvalidId, safe_id
from memoree.okf.node import INBOX, MIRROR, RESERVED_NAMES, SECRET, Node, parse

HIDDEN = frozenset((SECRET, MIRROR, INBOX, "tools", "demo", "node_modules", "lib", "bin", "docs"))
LABEL_CHARS_MAX = 80
FENCE_MIN = 3
SOURCE, IMPORTED_FROM = "source", "imported_from"

Detect = Callable[[str], Sequence[str]]
"""Labels of what looks like an instruction in a text."""


@dataclass(slots=True)
class Imported:
    """`written` are bundle-relative paths: of nodes, or of the one inbox file, once per node. `refused` says why, by
    path; `flagged` are labels of what looked like an instruction, by path; `unchanged` was there already."""

    written: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    flagged: dict[str, list[str]] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)


def found_in(source: Path, imported: Imported) -> Iterator[File]:
    """The files of a directory that may be nodes; what cannot be read is refused. Raises `CONFIG_ERROR` for what is no
    directory."""
    met = Findings()
    for file in bundle.foreign_files(source, HIDDEN, met):
        if file.path.rpartition("/")[2] not in RESERVED_NAMES:
            yield file
    imported.refused |= {_told(path): "it is a link that leaves the directory" for path in met.escaping}
    imported.refused |= met.unreadable


def label_of(source: Path) -> str:
    """What a directory is called in `import:<label>`."""
    return re.sub(r"[^\w.-]+", "-", _told(source.resolve().name)).strip("-")[:LABEL_CHARS_MAX] or "directory"


def into_inbox(
    files: Iterable[File], root: Path, *, label: str, at_ms: int, detect: Detect, imported: Imported
) -> Path:
    """Append a block per node to the day's file, and return its path. What looks like an instruction is labelled and
    kept; what stands there already, word for word, is not written again."""
    day = dates.date(at_ms)
    path = Path(INBOX) / f"import-{day}{SUFFIX}"
    place = _inside(root, path)
    with _locked(place.parent):
        before = place.read_bytes() if place.exists() else b""
        text = before or _heading(day, label, at_ms)
        for file, node in _nodes(files, imported):
            found = list(detect(file.data.decode(errors="replace")))
            block = _block(node, file, found)
            if block in text:
                imported.unchanged.append(file.path)
            elif len(text) + len(block) > limits.OKF_NODE_BYTES_MAX:
                imported.refused[file.path] = f"{path} would have more than {limits.OKF_NODE_BYTES_MAX} bytes"
            else:
                text = text.rstrip(b"\n") + b"\n\n" + block
                imported.written.append(path.as_posix())
                imported.flagged |= {file.path: found} if found else {}
        if text != before and imported.written:
            _replace(place, text)
    return place


def into_concepts(
    files: Iterable[File], root: Path, *, label: str, detect: Detect, imported: Imported, dialect: Dialect
) -> None:
    """Copy each node to its path, with `source: import:<label>`; where that path is taken, the node is refused. A
    source that a node names itself is kept, and the import told beside it; the reference program replaces it."""
    for file, node in _nodes(files, imported):
        try:
            place = _inside(root, Path(file.path))
            keeps = dialect is Dialect.SERVICE and bool(node.entries(SOURCE))
            data = editing.with_fields(file.data, {IMPORTED_FROM if keeps else SOURCE: f"import:{label}"})
            _create(place, data)
        except FileExistsError:
            imported.refused[file.path] = "there is such a node already"
        except MemoreeError as error:
            imported.refused[file.path] = error.message
        except OSError as error:
            imported.refused[file.path] = error.strerror or str(error)
        else:
            imported.written.append(file.path)
            if found := list(detect(file.data.decode(errors="replace"))):
                imported.flagged[file.path] = found


def _nodes(files: Iterable[File], imported: Imported) -> Iterator[tuple[File, Node]]:
    """What can be taken in. What is secret is judged as the service does, whatever program will read it."""
    for file in files:
        node = parse(file.id, file.data)
        reason = _unfit(file, node)
        if reason is None:
            yield file, node
        else:
            imported.refused[_told(file.path)] = reason


def _unfit(file: File, node: Node) -> str | None:
    """Why a file is no node that can be taken in. What is secret stays where it is."""
    try:
        if f"{safe_id(file.path)}{SUFFIX}" != file.path:
            return "its path is not safe"
    except InvalidId:
        return "its path is not safe"
    if node.problem is not None:
        return node.problem
    if not node.has_front_matter:
        return "it has no front matter"
    if not node.native_type:
        return "it has no type"
    return "it is secret" if node.is_secret else None


def _heading(day: str, label: str, at_ms: int) -> bytes:
    fields = {"type": "Inbox", "title": f"Import {day}", "visibility": "internal", "timestamp": dates.iso(at_ms)}
    lines = [editing.line(name, value) for name, value in (fields | {SOURCE: f"import:{label}"}).items()]
    return "\n".join(("---", *lines, "---", "", f"# Import {day}", "")).encode()


def _block(node: Node, file: File, labels: Sequence[str]) -> bytes:
    """In a fence that nothing in the file can end."""
    runs = [len(run) for run in re.findall(rb"`+", file.data)]
    fence = b"`" * max(FENCE_MIN, *(length + 1 for length in runs), FENCE_MIN)
    head = [f"## {node.id}", ""]
    if labels:
        head += [f"quarantine: true  <!-- patterns: {', '.join(labels)} -->", ""]
    head += [f"- path: {file.path}", f"- type: {' '.join(node.native_type.split())}", ""]
    tag = b"quarantine" if labels else b"markdown"
    data = file.data if file.data.endswith(b"\n") else file.data + b"\n"
    return "\n".join(head).encode() + b"\n" + fence + tag + b"\n" + data + fence + b"\n"


def _inside(root: Path, path: Path) -> Path:
    """Where a file of the bundle goes, with its folder made. Raises `INVALID_REQUEST` where a link leads out of the
    bundle."""
    real = root.resolve()
    place = real / path
    if not place.parent.resolve().is_relative_to(real) or place.is_symlink():
        raise MemoreeError(Code.INVALID_REQUEST, f"{shown(path.as_posix())} leads out of the bundle by a link")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _create(place: Path, data: bytes) -> None:
    """Whole or not at all, and never over something."""
    temporary = place.with_name(f".memoree-{new_ulid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.link(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)


def _replace(place: Path, data: bytes) -> None:
    temporary = place.with_name(f".memoree-{new_ulid()}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One import at a time; the lock ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _told(name: str) -> str:
    return name.encode(errors="backslashreplace").decode()
