"""A bundle of OKF files as a source: one item per node, its path the external id, its SHA-256 the revision.

What is secret and what is raw is not delivered; links out of the bundle are not followed (OKF contract §8.3)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass, field
from pathlib import Path

from memoree.bundles.sync import FOREIGN_TIERS, GONE_REASON, HIDDEN_REASON, SOURCE_KIND
from memoree.bundles.watching import fingerprint, is_settled
from memoree.connectors import Change, Gone, Item, Skipped, Unchanged
from memoree.connectors.names import fault_of
from memoree.connectors.state import State
from memoree.connectors.threaded import in_thread
from memoree.errors import Code, MemoreeError
from memoree.okf import bundle
from memoree.okf.bundle import File, Findings, Tiers
from memoree.okf.node import parse

MEDIA_TYPE = "text/markdown; charset=utf-8"


@dataclass(slots=True)
class OkfConnector:
    """The nodes below `root`, reserved files among them. A scan that finds none although some were sent is refused,
    unless `allow_empty`. Between two scans of one connector nothing is read while names, sizes and times stay."""

    root: Path
    include_mirror: bool = False
    allow_empty: bool = False
    kind: str = SOURCE_KIND
    _scanned: str | None = field(default=None, init=False)

    @property
    def locator(self) -> str:
        return self.root.absolute().as_uri()

    def changes(self, state: State) -> AsyncGenerator[Change, None]:
        """Raises `CONFIG_ERROR` for a root that is no directory, or is empty against expectation."""
        return in_thread(self._scan(state))

    def _scan(self, state: State) -> Generator[Change, None, None]:
        tiers = Tiers(mirror=self.include_mirror)
        bundle.require_bundle(self.root)
        began_ns = time.time_ns()
        found, newest_ns = fingerprint(self.root, tiers)
        if found == self._scanned:
            return
        state.begin_scan()
        findings = Findings()
        skipped = False
        for file in bundle.files(self.root, tiers, findings):
            change = _change(state, file)
            skipped = skipped or isinstance(change, Skipped)
            if change is not None:
                yield change
        if (lost := state.saw_nothing_of()) and not self.allow_empty:
            raise MemoreeError(
                Code.CONFIG_ERROR,
                f"{self.root} holds none of the {lost} files that were sent before; is it mounted? "
                "If they are really gone, say --allow-empty to withdraw them",
            )
        told = {**dict.fromkeys(findings.escaping, "it is a link that leaves the bundle"), **findings.unreadable}
        for path, reason in told.items():
            yield Skipped(path, reason)
        for external_id in state.unseen():
            if not bundle.is_out_of_sight(external_id, tiers, findings):
                yield Gone(external_id, reason=GONE_REASON)
        is_done = not skipped and not told and is_settled(newest_ns, began_ns)
        self._scanned = found if is_done else None


def _change(state: State, file: File) -> Change | None:
    """What is to be said of a file; `None` of a secret that nobody was told of."""
    if (fault := fault_of(file.path)) is not None:
        return Skipped(file.path, fault)
    sha256 = hashlib.sha256(file.data).hexdigest()
    sent = state.sent(file.path)
    if sent is not None:
        state.see(file.path)
    if sent is not None and sent.external_revision == sha256:
        return Unchanged(file.path, None)
    node = parse(file.id, file.data)
    if node.is_secret or file.path.partition("/")[0] in FOREIGN_TIERS:
        return None if sent is None else Gone(file.path, reason=HIDDEN_REASON)
    state.see(file.path)
    return Item(
        external_id=file.path,
        external_revision=sha256,
        title=file.path,
        media_type=MEDIA_TYPE,
        content=file.data,
        provenance={"source": SOURCE_KIND, "path": file.path, "sha256": sha256},
    )
