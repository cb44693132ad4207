"""A branch of a git repository as a source: one item per file, one revision per commit of the main line that changed
it.

The main line is what first parents lead to: a merge is one change, made by whoever merged. A branch that was rewritten
is recognised by its last delivered commit not being on the main line any more; the tree is then compared with what was
sent, and history goes on from there.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memoree import clock, limits
from memoree.clock import Clock
from memoree.connectors import Change, Gone, Item, Reached, Skipped, Unchanged
from memoree.connectors.git_commands import Git, git_dir_of
from memoree.connectors.git_history import Commit, History, TreeFile
from memoree.connectors.media_types import media_type_of, title_of
from memoree.connectors.names import Wanted, external_id_of, fault_of, name_of
from memoree.connectors.state import State
from memoree.connectors.threaded import in_thread
from memoree.errors import Code, MemoreeError, shown

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://|[^/\\:]+:(?!//)", re.IGNORECASE)
"""A URL, or the short form of ssh, `host:path`."""
_PASSWORD = re.compile(r"(?<=://)[^/@]*@")
_BRANCH, _NOT_BEFORE = "branch", "not_before"
_EPOCH = "1970-01-01T00:00:00Z"
SUBJECT_CHARS_MAX = 500


@dataclass(frozen=True, slots=True)
class GitConnector:
    """`repository` is a local path or a URL; of a URL a mirror is kept in `mirror`. `branch` defaults to the one that
    the repository's HEAD named at the first run. Without `history` a first run begins with the tree as it is."""

    repository: str
    mirror: Path
    branch: str | None = None
    wanted: Wanted = field(default_factory=Wanted)
    bytes_max: int = limits.CONNECTOR_ITEM_BYTES_MAX
    history: bool = True
    clock: Clock = clock.utc_now
    kind: str = "git"

    @property
    def locator(self) -> str:
        """Without whatever stands before an `@`: a locator is stored, and shown."""
        if _REMOTE.match(self.repository):
            return _PASSWORD.sub("", self.repository)
        return Path(self.repository).absolute().as_uri()

    def changes(self, state: State) -> AsyncGenerator[Change, None]:
        """Raises `CONFIG_ERROR` for a repository or branch that cannot be read."""
        return in_thread(self._changes(state))

    def _changes(self, state: State) -> Generator[Change, None, None]:
        branch, git = self._opened(state)
        state.remember(_BRANCH, branch)
        with History.open(git) as history:
            tip = history.tip(f"refs/heads/{branch}")
            cursor = state.cursor
            goes_on = self.history if cursor is None else history.is_on_main_line(cursor, tip)
            if goes_on:
                yield from self._history(history, state, branch, tip, cursor)
            else:
                yield from self._tree(history, state, branch, tip)

    def _opened(self, state: State) -> tuple[str, Git]:
        """The branch to follow, and a repository that has it as it is now."""
        branch = self.branch or state.recall(_BRANCH)
        if not _REMOTE.match(self.repository):
            git = Git(git_dir_of(Path(self.repository)))
            return branch or git.text("symbolic-ref", "--short", "HEAD"), git
        git = Git(self.mirror)
        if not (self.mirror / "HEAD").exists():
            git.text("init", "--quiet", "--bare")
        branch = branch or _default_branch(
            git.text("ls-remote", "--symref", "--end-of-options", self.repository, "HEAD")
        )
        wanted = f"+refs/heads/{branch}:refs/heads/{branch}"
        git.text("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--end-of-options", self.repository, wanted)
        return branch, git

    # --- commit by commit ---------------------------------------------------------------------------------------

    def _history(self, history: History, state: State, branch: str, tip: str, cursor: str | None) -> Iterator[Change]:
        observed_at = state.position(_NOT_BEFORE) or _EPOCH
        for commit in history.first_parents(tip, after=cursor):
            observed_at = _instant(commit, observed_at)
            for file in history.changed(commit):
                yield from self._file(history, branch, commit, observed_at, file)
            yield Reached(commit.commit_id, {_NOT_BEFORE: observed_at})

    def _file(
        self, history: History, branch: str, commit: Commit, observed_at: str, file: TreeFile
    ) -> Iterator[Change]:
        external_id = external_id_of(file.path)
        if external_id not in self.wanted:
            return
        if file.blob_id is None:
            yield Gone(external_id, f"removed by commit {commit.commit_id}", observed_at)
        elif (fault := fault_of(external_id)) is not None:
            yield Skipped(f"{external_id[: limits.TITLE_BYTES_MAX]} in commit {commit.commit_id}", fault)
        elif (content := history.content(file.blob_id, self.bytes_max)) is None:
            yield Skipped(f"{external_id} in commit {commit.commit_id}", f"it has more than {self.bytes_max} bytes")
        else:
            yield self._item(branch, commit, observed_at, external_id, file.blob_id, content)

    def _item(
        self, branch: str, commit: Commit, observed_at: str, external_id: str, blob_id: str, content: bytes
    ) -> Item:
        media_type = media_type_of(name_of(external_id), content)
        return Item(
            external_id=external_id,
            external_revision=commit.commit_id,
            title=title_of(name_of(external_id), media_type, content),
            media_type=media_type,
            content=content,
            provenance={
                "connector": "git",
                "path": external_id,
                "branch": branch,
                "commit": commit.commit_id,
                "blob": blob_id,
                "author": commit.author[:SUBJECT_CHARS_MAX],
                "authored_at": commit.authored_at,
                "committed_at": commit.committed_at,
                "subject": commit.subject[:SUBJECT_CHARS_MAX],
            },
            observed_at=observed_at,
            hint=blob_id,
        )

    # --- the tree as it is --------------------------------------------------------------------------------------

    def _tree(self, history: History, state: State, branch: str, tip: str) -> Iterator[Change]:
        """Make what was sent equal to a tree. Deliveries from now on are later than all before: a commit that comes
        back to the main line is a new delivery."""
        now = clock.wire(max(clock.stored(self.clock()), clock.parse_timestamp(state.position(_NOT_BEFORE) or _EPOCH)))
        state.begin_scan()
        commit = history.commit(tip)
        for file in history.files(tip):
            external_id = external_id_of(file.path)
            if external_id not in self.wanted:
                continue
            if not state.see(external_id):
                yield Skipped(external_id, "another spelling of the same name was delivered")
                continue
            sent = state.sent(external_id)
            if sent is not None and sent.hint == file.blob_id:
                yield Unchanged(external_id, file.blob_id)
            else:
                yield from self._file(history, branch, commit, now, file)
        for external_id in state.unseen():
            yield Gone(external_id, f"not in commit {tip}, to which the branch was set", now)
        yield Reached(tip, {_NOT_BEFORE: now})


def _instant(commit: Commit, not_before: str) -> str:
    """When the commit was made, never before the one before it. The same whenever the history is read."""
    try:
        made = clock.parse_timestamp(commit.committed_at)
    except ValueError:  # git takes any number for a date
        return not_before
    return clock.wire(max(made, clock.parse_timestamp(not_before)))


def _default_branch(answer: str) -> str:
    for line in answer.splitlines():
        if line.startswith("ref: refs/heads/") and line.endswith("\tHEAD"):
            return line.removeprefix("ref: refs/heads/").removesuffix("\tHEAD")
    raise MemoreeError(
        Code.CONFIG_ERROR, f"the repository does not say which branch is its main one; name it: {shown(answer)}"
    )
