"""Every ratio, in the order of measuring: small tenants first, then the full one, then the memories that are filled
without a stack."""

from __future__ import annotations

from .figures import Ratio
from .ratios import (
    cold_start,
    concurrent_writes,
    context,
    durable_ack,
    hostile,
    memory,
    quality,
    recall,
    recall_growth,
    relation_list,
    revise,
    search,
    stream,
    verify,
    visible_elsewhere,
    writer_throughput,
)

RATIOS: tuple[Ratio, ...] = (
    durable_ack.RATIO,
    visible_elsewhere.RATIO,
    concurrent_writes.RATIO,
    stream.RATIO,
    writer_throughput.RATIO,
    revise.RATIO,
    relation_list.RATIO,
    verify.RATIO,
    search.RATIO,
    cold_start.RATIO,
    memory.API,
    memory.WRITER,
    recall.RATIO,
    context.RATIO,
    hostile.RATIO,
    recall_growth.RATIO,
    *quality.OWN_CORPUS,
    quality.CRANFIELD,
)
