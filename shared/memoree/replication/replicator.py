"""How databases reach their prefixes in the object store and come back: what writers and readers ask of Litestream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from memoree.replication.litestream import Litestream, LitestreamSettings, ReplicaTarget, Synced, restore


class Child(Protocol):
    """What replicates one database into one prefix. Each method means and raises what `Litestream`'s does."""

    async def start(self) -> None: ...

    async def sync(self, timeout_seconds: int) -> Synced: ...

    async def stop(self) -> bool: ...

    async def kill(self) -> None: ...

    async def restart(self) -> None: ...


class Replicator(Protocol):
    """Prefixes are whole keys of the store, `tenants/<tenant>/ltx/…/`."""

    def child(self, database: Path, prefix: str) -> Child:
        """For the one epoch that owns the prefix; not started yet."""

    async def restore(self, prefix: str, txid: int, output: Path) -> None:
        """As `memoree.replication.litestream.restore`."""


@dataclass(frozen=True, slots=True)
class LitestreamReplicator:
    """`target` says where a prefix is."""

    target: Callable[[str], ReplicaTarget]
    settings: LitestreamSettings = field(default_factory=LitestreamSettings)

    def child(self, database: Path, prefix: str) -> Litestream:
        return Litestream(database, self.target(prefix), self.settings)

    async def restore(self, prefix: str, txid: int, output: Path) -> None:
        await restore(self.target(prefix), txid, output)
