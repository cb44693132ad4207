"""Claims per second through queue and writer under a batch load, against a bare loop over the same rows."""

from __future__ import annotations

from ..figures import Figure, Ratio
from ..site import Site


async def measure(site: Site) -> Figure:
    filled = await site.filled()
    absolute = {
        "writer_claims_per_second": filled.claims_per_second,
        "bare_sqlite_claims_per_second": filled.bare_claims_per_second,
    }
    return Figure(filled.claims_per_second, filled.bare_claims_per_second, absolute)


RATIO = Ratio(
    name="writer_over_bare_sqlite",
    measured_is="claims/s from the first send to the head that covers the last claim",
    floor_is="claims/s of a bare apsw loop over the same rows",
    must=0.15,
    aim=0.3,
    measure=measure,
    higher_is_better=True,
)
