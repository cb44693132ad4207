"""Every ratio, in the order of measuring: small tenants first, then the full one, then the memories that are filled
without a stack."""

from __future__ import annotations

from .figures import Ratio
from .ratios import (
    backup,
    cold_start,
    concurrent_writes,
    context,
    durable_ack,
    failover,
    hostile,
    ingest,
    memory,
    quality,
    recall,
    recall_growth,
    relation_list,
    restore,
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
    ingest.RATIO,
    revise.RATIO,
    relation_list.RATIO,
    verify.RATIO,
    backup.RATIO,
    restore.FILE,
    restore.TENANT,
    failover.SUPERVISED,
    failover.UNSUPERVISED,
    failover.PLANNED,
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
