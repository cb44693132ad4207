"""A branch of a git repository as a source: one item per file, one revision per commit of the main line that changed
it.

The main line is what first parents lead to: a merge is one change, made by whoever merged. A branch that was rewritten
is recognised by its last delivered commit not being on the main line any more; the tree is then compared with what was
sent, and history goes on from there.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from memoree import clock, limits
from memoree.clock import Clock
from memoree.connectors import Change, Gone, Item, Reached, Settle, Skipped, Unchanged
from memoree.connectors.git_commands import USER_INFORMATION, Git, git_dir_of
from memoree.connectors.git_history import Commit, History, TreeFile
from memoree.connectors.git_spellings import Spelled, Spellings, left_over, reminder_name
from memoree.connectors.media_types import media_type_of, title_of
from memoree.connectors.names import TWIN_REASON, Wanted, external_id_of, fault_of, name_of
from memoree.connectors.state import State
from memoree.connectors.threaded import in_thread
from memoree.errors import Code, MemoreeError, shown

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://|[^/\\:]+:(?!//)", re.IGNORECASE)
"""A URL, or the short form of ssh, `host:path`."""
_BRANCH, _NOT_BEFORE = "branch", "not_before"
_EPOCH = "1970-01-01T00:00:00Z"
_TICK = timedelta(microseconds=1)
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
            return USER_INFORMATION.sub("", self.repository)
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
        files, spellings = _Files(self, history, branch), Spellings(state)
        if cursor is not None:
            yield from self._again(history, files, state, spellings, cursor)
        for commit in history.first_parents(tip, after=cursor):
            observed_at = _instant(commit, observed_at)
            yield from self._commit(history, files, spellings, commit, observed_at)
            if len(spellings) >= limits.CONNECTOR_BATCH_ITEMS_MAX:
                yield Settle()
                spellings.refresh()

    def _again(
        self, history: History, files: _Files, state: State, spellings: Spellings, cursor: str
    ) -> Iterator[Change]:
        """What earlier runs skipped, as of then. Patterns may be others since, and a commit that was told in part may
        have left the branch."""
        skipped = left_over(state)
        commits = {
            commit_id: history.commit(commit_id)
            for commit_id in {spelled.commit_id for spelled in skipped}
            if history.is_ancestor(commit_id, cursor)
        }
        settled: list[str] = []
        for spelled in skipped:
            holder = spellings.holder(spelled.external_id)
            if spelled.external_id not in self.wanted or spelled.commit_id not in commits:
                settled.append(spelled.reminder.name)
                spellings.drop(spelled.path)
            elif holder is not None and holder[0] != spelled.path and history.has(cursor, holder[0]):
                yield _skipped(spelled, TWIN_REASON)
            else:
                change = files.change(commits[spelled.commit_id], spelled)
                if isinstance(change, Item):
                    spellings.hold(spelled)
                yield change
        if settled:
            yield Reached(cursor, settled=settled)

    def _commit(
        self, history: History, files: _Files, spellings: Spellings, commit: Commit, observed_at: str
    ) -> Iterator[Change]:
        changed: dict[str, list[TreeFile]] = {}
        for file in history.changed(commit):
            if (external_id := external_id_of(file.path)) in self.wanted:
                changed.setdefault(external_id, []).append(file)
        removed: list[str] = []
        for external_id, twins in changed.items():
            yield from _spelled(files, spellings, commit, observed_at, external_id, twins)
            for file in twins:
                if file.blob_id is None:
                    removed.append(reminder_name(file.path))
                    spellings.drop(file.path)
        yield Reached(commit.commit_id, {_NOT_BEFORE: observed_at}, removed)

    # --- the tree as it is --------------------------------------------------------------------------------------

    def _tree(self, history: History, state: State, branch: str, tip: str) -> Iterator[Change]:
        """Make what was sent equal to a tree. Deliveries from now on are later than all before: a commit that comes
        back to the main line is a new delivery."""
        now = clock.wire(max(clock.stored(self.clock()), _after(state.position(_NOT_BEFORE) or _EPOCH)))
        outdated = set(state.reminders())
        state.begin_scan()
        commit, files = history.commit(tip), _Files(self, history, branch)
        for file in history.files(tip):
            external_id = external_id_of(file.path)
            if external_id not in self.wanted or file.blob_id is None:
                continue
            spelled = Spelled(file.path, file.blob_id, tip, now)
            sent, is_first = state.sent(external_id), state.see(external_id)
            if is_first and sent is not None and sent.hint == spelled.hint:
                yield Unchanged(external_id, sent.hint)
            else:
                outdated.discard(spelled.reminder.name)
                yield files.change(commit, spelled) if is_first else _skipped(spelled, TWIN_REASON)
        for external_id in state.unseen():
            yield Gone(external_id, f"not in commit {tip}, to which the branch was set", now)
        yield Reached(tip, {_NOT_BEFORE: now}, outdated)


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of a branch as items."""

    connector: GitConnector
    history: History
    branch: str

    def change(self, commit: Commit, spelled: Spelled) -> Item | Skipped:
        bytes_max = self.connector.bytes_max
        if (fault := fault_of(spelled.external_id)) is not None:
            return _skipped(spelled, fault)
        if (content := self.history.content(spelled.blob_id, bytes_max)) is None:
            return _skipped(spelled, f"it has more than {bytes_max} bytes")
        name = name_of(spelled.external_id)
        media_type = media_type_of(name, content)
        return Item(
            external_id=spelled.external_id,
            external_revision=commit.commit_id,
            title=title_of(name, media_type, content),
            media_type=media_type,
            content=content,
            provenance={
                "connector": "git",
                "path": spelled.external_id,
                "branch": self.branch,
                "commit": commit.commit_id,
                "blob": spelled.blob_id,
                "author": commit.author[:SUBJECT_CHARS_MAX],
                "authored_at": commit.authored_at,
                "committed_at": commit.committed_at,
                "subject": commit.subject[:SUBJECT_CHARS_MAX],
            },
            observed_at=spelled.observed_at,
            hint=spelled.hint,
            reminder=spelled.reminder,
        )


def _spelled(
    files: _Files,
    spellings: Spellings,
    commit: Commit,
    observed_at: str,
    external_id: str,
    changed: Sequence[TreeFile],
) -> Iterator[Change]:
    """What a commit did to one external id. Of the spellings that are there the first one is delivered; the item is
    withdrawn when the one that was delivered is gone and none could take its place."""
    there = {
        path: Spelled(path, blob_id, commit.commit_id, observed_at)
        for path, blob_id in spellings.after(external_id, changed).items()
    }
    held, _ = spellings.holder(external_id) or (None, None)
    told = {file.path for file in changed} & there.keys()
    delivered = False
    if there and ((chosen := next(iter(there))) in told or chosen != held):
        change = files.change(commit, there[chosen])
        if delivered := isinstance(change, Item):
            spellings.hold(there[chosen])
            told |= {held} & there.keys() if held is not None else set()
        else:
            spellings.leave(there[chosen])
        told.discard(chosen)
        yield change
    if held is not None and held not in there and not delivered:
        spellings.withdraw(external_id)
        yield Gone(external_id, f"removed by commit {commit.commit_id}", observed_at)
    for path in there:
        if path in told:
            spellings.leave(there[path])
            yield _skipped(there[path], TWIN_REASON)


def _skipped(spelled: Spelled, reason: str) -> Skipped:
    where = f"{spelled.external_id[: limits.TITLE_BYTES_MAX]} in commit {spelled.commit_id}"
    return Skipped(where, reason, spelled.reminder)


def _instant(commit: Commit, before: str) -> str:
    """When the commit was made, but always after the one before it: what two commits say of one item must not be taken
    for one delivery. The same whenever the history is read."""
    earliest = _after(before)
    try:
        made = clock.parse_timestamp(commit.committed_at)
    except ValueError:  # git takes any number for a date
        made = earliest
    return clock.wire(max(made, earliest))


def _after(instant: str) -> str:
    """The stored form of the next instant."""
    return clock.stored(clock.from_stored(clock.parse_timestamp(instant)) + _TICK)


def _default_branch(answer: str) -> str:
    for line in answer.splitlines():
        if line.startswith("ref: refs/heads/") and line.endswith("\tHEAD"):
            return line.removeprefix("ref: refs/heads/").removesuffix("\tHEAD")
    raise MemoreeError(
        Code.CONFIG_ERROR, f"the repository does not say which branch is its main one; name it: {shown(answer)}"
    )
