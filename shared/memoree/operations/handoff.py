"""What the next session must know of a project (OKF contract §3.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, Field

from memoree.database import okf
from memoree.envelope import WireModel
from memoree.okf import handoff as domain
from memoree.okf.handoff import DAYS_DEFAULT, DAYS_MAX
from memoree.okf.indexing import node_of
from memoree.okf.node import Node, parse
from memoree.operations import okf_nodes
from memoree.operations.call import Call
from memoree.operations.ledger import instant_ms
from memoree.operations.registry import EXTENSION, read
from memoree.operations.view import View

HANDOFF = "okf.handoff"
PROJECT_CHARS_MAX = 1024
TYPES = frozenset(("task", "decision", "plan", "session"))
WITH_BODY = "session"


class OkfHandoff(WireModel):
    project: Annotated[str, Field(min_length=1, max_length=PROJECT_CHARS_MAX)] | None = None
    days: Annotated[int, Field(ge=0, le=DAYS_MAX)] = DAYS_DEFAULT


class HandoffPayload(BaseModel):
    """The payload of `memory_handoff`."""


@read(HANDOFF, position=EXTENSION, input=OkfHandoff, result=HandoffPayload, needs_context=True)
def handoff(view: View, call: Call[OkfHandoff]) -> dict[str, Any]:
    """A project without a bundle has an empty one."""
    wanted = call.input
    if wanted.project is not None:
        okf_nodes.caller_id(wanted.project)
    found = domain.handoff(_nodes(view, call), at_ms=instant_ms(view.now), project=wanted.project, days=wanted.days)
    return found.payload()


def _nodes(view: View, call: Call[OkfHandoff]) -> Iterator[Node]:
    """Those of canon; of sessions also their text, of which the handoff tells."""
    bundle = okf_nodes.bundle_of(view, call.owner)
    for row in [] if bundle is None else okf.every(view.db, bundle.row_id):
        if row.tier != okf.CANON:
            continue
        node = node_of(row)
        if node.native_type.lower() == WITH_BODY:
            node = parse(row.node_id, okf_nodes.node_bytes(view, row))
        yield node
