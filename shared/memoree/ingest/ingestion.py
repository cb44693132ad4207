"""Everything about the ingest queue of one deployment, tied together by the assembly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memoree.ingest.dead import DeadLetters
from memoree.ingest.publisher import Publisher
from memoree.ingest.worker import IngestWorker
from memoree.queue import CommandQueue

if TYPE_CHECKING:
    from memoree.http.auth import Tokens


@dataclass(frozen=True, slots=True)
class Ingestion:
    """What connectors (`publisher`), operators (`dead`) and worker processes work with. Belongs to one event loop."""

    queue: CommandQueue
    dead: DeadLetters
    publisher: Publisher
    worker: IngestWorker
    tokens: Tokens | None = None
    """Whose tenants are known before anything was written to them."""
