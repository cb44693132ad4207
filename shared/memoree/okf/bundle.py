"""A bundle as a directory of files (OKF contract §1.1)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memoree.errors import Code, MemoreeError, shown
from memoree.limits import OKF_NODE_BYTES_MAX
from memoree.okf.dialect import Dialect
from memoree.okf.ids import SUFFIX
from memoree.okf.node import INBOX, MIRROR, SECRET, Node, parse

SKIPPED = frozenset(("node_modules", "tools", "demo", "docs", "ledger", "fleet", "bench"))
LEDGER_PATH = "ledger/events.jsonl"
FOLDERS_DEEP_MAX = 64


@dataclass(frozen=True, slots=True)
class Tiers:
    """What is loaded beside canon."""

    secret: bool = False
    mirror: bool = False
    inbox: bool = False

    @property
    def hidden_folders(self) -> frozenset[str]:
        shown_tiers = {SECRET: self.secret, MIRROR: self.mirror, INBOX: self.inbox}
        return frozenset(name for name, is_shown in shown_tiers.items() if not is_shown)


CANON = Tiers()
EVERYTHING = Tiers(secret=True, mirror=True, inbox=True)


@dataclass(frozen=True, slots=True)
class File:
    """One file of a bundle; `path` is relative and has slashes. `data` are its bytes."""

    path: str
    data: bytes
    modified_ms: int

    @property
    def id(self) -> str:
        return self.path.removesuffix(SUFFIX)


@dataclass(slots=True)
class Findings:
    """What a walk met and did not load: paths of symbolic links that lead out of the bundle, and of unreadable files
    with what is wrong."""

    escaping: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


def require_bundle(root: Path) -> None:
    """Raises `CONFIG_ERROR` for a root that is no directory."""
    if not root.is_dir():
        reason = "is not a directory" if root.exists() else "does not exist"
        raise MemoreeError(Code.CONFIG_ERROR, f"the bundle {shown(str(root))} {reason}")


def files(root: Path, tiers: Tiers = CANON, findings: Findings | None = None) -> Iterator[File]:
    """The Markdown files of a bundle in the order of their names, folders where they stand among them. What cannot be
    read is passed over; no link is followed out of the bundle, nor into its secrets and hidden folders."""
    require_bundle(root)
    rules = _Rules(root.resolve(), tiers.hidden_folders, SKIPPED, findings or Findings())
    yield from _walk(root, rules, "", deep=0)


def foreign_files(root: Path, hidden: frozenset[str], findings: Findings | None = None) -> Iterator[File]:
    """As `files`, of a directory that may be no bundle: only folders at its top with these names are hidden."""
    require_bundle(root)
    yield from _walk(root, _Rules(root.resolve(), hidden, frozenset(), findings or Findings()), "", deep=0)


def is_out_of_sight(path: str, tiers: Tiers, findings: Findings) -> bool:
    """Whether a walk that had these findings says nothing of a path: it may be there, for all that is known."""
    unread = (*findings.unreadable, *findings.escaping)
    if path.partition("/")[0] in tiers.hidden_folders:
        return True
    return any(each == "." or path == each or path.startswith(f"{each.rstrip('/')}/") for each in unread)


def nodes(root: Path, dialect: Dialect, tiers: Tiers = CANON) -> Iterator[Node]:
    """The nodes of a bundle, reserved files included."""
    for file in files(root, tiers):
        node = parse(file.id, file.data, dialect)
        if tiers.secret or not node.is_secret:
            yield node


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a walk passes over: folders at the top that are hidden, names that are skipped anywhere."""

    root: Path
    hidden: frozenset[str]
    skipped: frozenset[str]
    findings: Findings

    def hides(self, path: str, target: Path) -> bool:
        """Whether a link into the bundle would show, as something else, what its own folder hides."""
        folders = target.relative_to(self.root).parts[:-1]
        top, own_top = folders[0] if folders else "", path.split("/")[0] if "/" in path else ""
        if top != own_top and (top in self.hidden or top in (SECRET, MIRROR, INBOX)):
            return True
        return SECRET in (folder.lower() for folder in folders)


def _walk(folder: Path, rules: _Rules, prefix: str, *, deep: int) -> Iterator[File]:
    findings = rules.findings
    try:
        names = sorted(os.fsencode(entry.name) for entry in folder.iterdir())
    except OSError as error:
        findings.unreadable[prefix or "."] = error.strerror or str(error)
        return
    for name in map(os.fsdecode, names):
        if name.startswith((".", "_")) or name in rules.skipped or (not prefix and name in rules.hidden):
            continue
        path, at = f"{prefix}{name}", folder / name
        try:
            is_link = at.is_symlink()
            if is_link and not (target := at.resolve()).is_relative_to(rules.root):
                findings.escaping.append(path)
                continue
            if is_link and rules.hides(path, target):
                findings.unreadable[path] = "it is a link to what is hidden"
                continue
            mode = at.stat().st_mode
            if stat.S_ISDIR(mode):
                if is_link:  # its files would be nodes twice, or without end
                    findings.unreadable[path] = "it is a link to a folder"
                    continue
                if deep == FOLDERS_DEEP_MAX:
                    findings.unreadable[path] = f"it lies more than {FOLDERS_DEEP_MAX} folders deep"
                    continue
                yield from _walk(at, rules, f"{path}/", deep=deep + 1)
            elif name.endswith(SUFFIX) and stat.S_ISREG(mode) and (file := _read(at, path, findings)) is not None:
                yield file
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
            findings.unreadable[path] = getattr(error, "strerror", None) or str(error)


def _read(at: Path, path: str, findings: Findings) -> File | None:
    try:
        path.encode()
    except UnicodeEncodeError:
        findings.unreadable[ascii(path)] = "its name is not UTF-8"
        return None
    with at.open("rb") as opened:
        status = os.fstat(opened.fileno())
        if status.st_size > OKF_NODE_BYTES_MAX:
            findings.unreadable[path] = f"it has more than {OKF_NODE_BYTES_MAX} bytes"
            return None
        return File(path, opened.read(OKF_NODE_BYTES_MAX), status.st_mtime_ns // 1_000_000)
