"""What a repository says about its commits, trees and files, read from plumbing commands only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, Self

from memoree.connectors.git_commands import Git
from memoree.errors import Code, MemoreeError

REGULAR_MODES = frozenset({"100644", "100755"})
"""Neither links (120000) nor submodules (160000)."""
_COMMIT_FORMAT = "%H%x00%P%x00%an <%ae>%x00%aI%x00%cI%x00%s"
_END = b"end\n"


@dataclass(frozen=True, slots=True)
class Commit:
    """Instants are RFC 3339 as git writes them."""

    commit_id: str
    parents: tuple[str, ...]
    author: str
    authored_at: str
    committed_at: str
    subject: str

    @property
    def first_parent(self) -> str | None:
        return self.parents[0] if self.parents else None


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A regular file, `blob_id` being `None` when there is none any more. `path` as `os.fsdecode` gives it."""

    path: str
    blob_id: str | None


class History:
    """The readers of one repository, which stay open while they are used."""

    def __init__(self, git: Git, blobs: tuple[IO[bytes], IO[bytes]], trees: tuple[IO[bytes], IO[bytes]]) -> None:
        self._git = git
        self._blobs = blobs
        self._trees = trees

    @classmethod
    @contextmanager
    def open(cls, git: Git) -> Iterator[Self]:
        with ExitStack() as stack:
            blobs = stack.enter_context(git.conversing("cat-file", "--batch"))
            trees = stack.enter_context(
                git.conversing(
                    *("diff-tree", "--stdin", "-r", "-z", "--root", "--no-renames", "--no-commit-id", "--no-ext-diff")
                )
            )
            yield cls(git, blobs, trees)

    def tip(self, branch: str) -> str:
        """The commit a branch names. Raises `CONFIG_ERROR`."""
        return self._git.text("rev-parse", "--verify", "--quiet", "--end-of-options", f"{branch}^{{commit}}")

    def commit(self, commit_id: str) -> Commit:
        (found,) = self._commits("--max-count=1", commit_id)
        return found

    def first_parents(self, tip: str, *, after: str | None) -> Iterator[Commit]:
        """The commits of the main line, the oldest first, from behind `after` on."""
        return self._commits("--first-parent", "--reverse", tip, *(() if after is None else (f"^{after}",)))

    def is_on_main_line(self, commit_id: str, tip: str) -> bool:
        """Whether the main line of `tip` passes through a commit. False for one that does not exist here."""
        if not self._git.says("cat-file", "-e", f"{commit_id}^{{commit}}"):
            return False
        if commit_id == tip:
            return True
        oldest = next(self._commits("--first-parent", "--reverse", tip, f"^{commit_id}"), None)
        return oldest is not None and oldest.first_parent == commit_id

    def is_ancestor(self, commit_id: str, tip: str) -> bool:
        """False for a commit that does not exist here."""
        return self._git.says("merge-base", "--is-ancestor", commit_id, tip)

    def has(self, commit_id: str, path: str) -> bool:
        """Whether there is anything at a path in a commit."""
        return self._git.says("cat-file", "-e", f"{commit_id}:{path}")

    def changed(self, commit: Commit) -> Iterator[TreeFile]:
        """The files in which a commit differs from its first parent: regular ones, and what is none any more."""
        ask, answer = self._trees
        compared = commit.commit_id if commit.first_parent is None else f"{commit.commit_id} {commit.first_parent}"
        ask.write(f"{compared}\n".encode() + _END)
        ask.flush()
        for fields, path in _raw_entries(answer):
            _, mode, _, blob_id, _ = fields
            yield TreeFile(path, blob_id if mode in REGULAR_MODES else None)

    def files(self, commit_id: str) -> Iterator[TreeFile]:
        """All regular files of a commit."""
        with self._git.reading("ls-tree", "-r", "-z", "--full-tree", commit_id) as output:
            for entry in _terminated(output):
                described, _, path = entry.partition(b"\t")
                mode, kind, blob_id = described.decode().split()
                if kind == "blob" and mode in REGULAR_MODES:
                    yield TreeFile(os.fsdecode(path), blob_id)

    def content(self, blob_id: str, bytes_max: int) -> bytes | None:
        """The bytes of a file, `None` for more than `bytes_max`."""
        ask, answer = self._blobs
        ask.write(f"{blob_id}\n".encode())
        ask.flush()
        header = answer.readline().split()
        if len(header) != 3 or header[1] != b"blob":
            raise _broken(f"object {blob_id} cannot be read")
        size = int(header[2])
        if size > bytes_max:
            _skip(answer, size + 1)
            return None
        content = answer.read(size)
        if len(content) != size or answer.read(1) != b"\n":
            raise _broken(f"object {blob_id} ends early")
        return content

    def _commits(self, *arguments: str) -> Iterator[Commit]:
        with self._git.reading(
            "rev-list", "--no-commit-header", "--encoding=UTF-8", f"--format={_COMMIT_FORMAT}", *arguments, "--"
        ) as output:
            for line in output:
                commit_id, parents, *words = line.decode(errors="replace").rstrip("\n").split("\0")
                yield Commit(commit_id, tuple(parents.split()), *words)


def _raw_entries(answer: IO[bytes]) -> Iterator[tuple[list[str], str]]:
    """What `diff-tree --stdin -z` says until the echo of what is no commit: the fields of each entry and its path."""
    while (start := answer.read(1)) == b":":
        fields = _until_nul(answer).decode().split()
        yield fields, os.fsdecode(_until_nul(answer))
    if start + answer.readline() != _END:
        raise _broken("two commits cannot be compared")


def _terminated(output: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while piece := output.read(1 << 16):
        *whole, rest = (rest + piece).split(b"\0")
        yield from whole


def _until_nul(answer: IO[bytes]) -> bytes:
    token = bytearray()
    while (byte := answer.read(1)) not in (b"", b"\0"):
        token += byte
    return bytes(token)


def _skip(answer: IO[bytes], size: int) -> None:
    while size and (piece := answer.read(min(size, 1 << 16))):
        size -= len(piece)


def _broken(reason: str) -> MemoreeError:
    return MemoreeError(Code.CONFIG_ERROR, f"the git repository is damaged: {reason}")
