"""The audit events of a tenant in the order of their commits, page by page: what its followers read.

A follower's place is a commit number. A restore takes numbers back, and a store may have taken the place of another: a
place that is none of this store is refused, with where to go on.
"""

from __future__ import annotations

from typing import Any, Self

import orjson
from pydantic import BaseModel, Field

from memoree import clock, limits
from memoree.database import events, ledger
from memoree.database.events import Change, Event
from memoree.envelope import WireModel
from memoree.episodes.clock import Lsn
from memoree.errors import Code, MemoreeError
from memoree.okf import ledger as ledger_events
from memoree.operations.call import Call
from memoree.operations.paging import cut
from memoree.operations.registry import INTERNAL, read
from memoree.operations.view import View

FEED = "feed.page"
HISTORY_CHANGED = "history_changed"
HIDDEN = "hidden"
"""The topic of events of a ledger that are about something secret: no door tells more of them."""


class FeedPosition(WireModel):
    """Where a page begins: after which commit, and which event that was, as far as the follower remembers."""

    after: int = Field(default=0, ge=0, le=2**63 - 1)
    after_event_id: str | None = None
    limit: int = Field(default=limits.FEED_EVENTS_DEFAULT, ge=1, le=2**63 - 1)


class ChangeRecord(BaseModel):
    """What an event did to another entity than its own."""

    entity_type: str
    entity_id: str
    revision_id: str | None = None
    status: str


class EventRecord(BaseModel):
    """One commit. `details` depend on the operation; an artifact's and a claim's have its `status` since."""

    commit_seq: int
    event_id: str
    lsn: dict[str, int]
    created_at: str
    operation: str
    entity_type: str
    entity_id: str
    revision_id: str | None = None
    actor: str | None = None
    details: dict[str, Any]
    also: list[ChangeRecord]

    @classmethod
    def of(cls, event: Event) -> Self:
        details = orjson.loads(event.payload)
        changes = (Change(*each) for each in details.pop("also", ()))
        if event.entity_type == ledger.TOPIC and _is_secret(details):
            event, details = event._replace(entity_id=HIDDEN, actor=None), {}
        return cls(
            commit_seq=event.commit_seq,
            event_id=event.event_id,
            lsn=Lsn.of(event.hlc).to_wire(),
            created_at=clock.wire(event.created_at),
            operation=event.operation,
            entity_type=event.entity_type,
            entity_id=event.entity_id,
            revision_id=event.revision_id,
            actor=event.actor,
            details=details,
            also=[ChangeRecord(**each._asdict()) for each in changes],
        )


class FeedPage(BaseModel):
    """`next_after` and `next_event_id` are the place of the last event shown, or else the one asked for."""

    events: list[EventRecord]
    next_after: int
    next_event_id: str | None = None


@read(FEED, position=INTERNAL, input=FeedPosition, result=FeedPage, needs_context=False, short=True)
def page(view: View, call: Call[FeedPosition]) -> FeedPage:
    """Raises `NOT_FOUND` for a place that this store does not have."""
    place = call.input
    known = _known(view, place)
    records = (EventRecord.of(event) for event in events.after(view.db, place.after))
    shown, _ = cut(records, limit=min(place.limit, limits.FEED_EVENTS_MAX), bytes_max=limits.FEED_PAGE_BYTES_MAX)
    last = (shown[-1].commit_seq, shown[-1].event_id) if shown else (place.after, known)
    return FeedPage(events=shown, next_after=last[0], next_event_id=last[1])


def _is_secret(payload: dict[str, Any]) -> bool:
    event = ledger_events.of_json(payload)
    return event is None or ledger_events.is_secret(event, frozenset())


def _known(view: View, place: FeedPosition) -> str | None:
    """The event at the follower's place; `None` where it has come to none yet."""
    if place.after == 0 and place.after_event_id is None:
        return None
    known = events.id_at(view.db, place.after)
    if known is not None and place.after_event_id in (None, known):
        return known
    resume_after = events.rewound_to(view.db, place.after)
    raise MemoreeError(
        Code.NOT_FOUND,
        f"this store has no such event at {place.after}: it was restored, or is another one; go on after "
        f"{resume_after} and take back what was learned of later ones",
        details={"kind": HISTORY_CHANGED, "resume_after": resume_after, "commit_seq": view.meta.commit_seq},
    )
