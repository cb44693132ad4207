"""`memoree.operations.view.Upkeep` over a replica and the object store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectStore
from memoree.objects.remote_audit import RemoteAudit


@dataclass(frozen=True, slots=True)
class RemoteUpkeep:
    """Of one tenant, for code that runs in threads beside the loop."""

    store: ObjectStore
    tenant: str
    loop: asyncio.AbstractEventLoop

    def blob_audit(self) -> RemoteAudit:
        return RemoteAudit(self.store, self.tenant, self.loop)

    def back_up(self, destination: Path, *, commit_seq_min: int) -> NoReturn:
        raise MemoreeError(
            Code.CONFIG_ERROR,
            "backup.create copies the data directory of an embedded store; this service keeps everything in a bucket: "
            "copy that",
        )
