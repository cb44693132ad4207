"""Episodes per second of 64 clients of MemoryProtocol, each waiting for its answer before it ingests again."""

from __future__ import annotations

from ..figures import Figure, Ratio
from ..site import Site
from ..wire import Caller, ingest
from .concurrent_writes import side_by_side


async def measure(site: Site) -> Figure:
    return await side_by_side(site, "POST /v1/ingest", _ingest, "ingests")


async def _ingest(caller: Caller) -> None:
    assert "lsn" in await caller.answered(ingest("one of many clients remembers this"))


RATIO = Ratio(
    name="ingest_64_over_put_64",
    measured_is="episodes/s of 64 clients of MemoryProtocol",
    floor_is="1 KiB PUTs/s of 64 clients",
    must=0.4,
    aim=1,
    measure=measure,
    higher_is_better=True,
)
