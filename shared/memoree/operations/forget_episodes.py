"""Forgetting episodes as MemoryProtocol asks for it (§8): a dry run, softly, or for good in two steps.

What is forgotten softly leaves the present and stays in its past; the artifact behind it is forgotten as
`artifact.forget` does it. What is deleted is erased, see `memoree.operations.erasure`. A deletion needs the
receipt of a dry run: every dry run is kept, and used up by the deletion that it confirms, in the same commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

import apsw
import orjson
from pydantic import BaseModel

from memoree import clock, limits
from memoree.database import artifacts, episodes, erasures, events, idempotency
from memoree.database.episodes import Episode, Preview
from memoree.database.events import Change
from memoree.envelope import WireModel
from memoree.episodes import targets
from memoree.episodes.clock import Lsn
from memoree.episodes.targets import Target
from memoree.errors import Code, MemoreeError, invalid, not_found
from memoree.operations.artifacts import tombstone
from memoree.operations.call import Call
from memoree.operations.erasure import erase_artifacts
from memoree.operations.registry import INTERNAL, mutation
from memoree.operations.shapes import Actor
from memoree.operations.view import Applied, Transaction
from memoree.retrieval.episode_filter import first_after

FORGET = "episode.forget"
INDICES = ("Kv", "Vector", "Graph")
CONFIRMATION_REQUIRED = "confirmation_required"
REASON = "forgotten through MemoryProtocol"
_AUDITED = "Forget"


class ReceiptOf(WireModel):
    """What a receipt of a dry run says of itself."""

    target: Target
    audit_lsn: dict[str, int]


class EpisodeForget(WireModel):
    """`confirmed_by` is the receipt that a deletion rests on."""

    target: Target
    hard: bool = False
    dry_run: bool = False
    confirmed_by: ReceiptOf | None = None
    actor: Actor | None = None


class Receipt(BaseModel):
    """As the protocol tells it, but that of a deletion does not repeat what it was about: nothing here does any more.
    `erasure` is its id, when it was, the artifacts that were erased, and how many blobs only they had."""

    target: dict[str, Any]
    indices_affected: list[str]
    matched: int
    rows_written: int
    rows_deleted: int
    audit_lsn: dict[str, int]
    preview: bool
    erasure: dict[str, Any] | None = None


@mutation(FORGET, position=INTERNAL, input=EpisodeForget, result=Receipt, scope="forget", rewrites=True)
def forget(tx: Transaction, call: Call[EpisodeForget]) -> Applied:
    """Raises `NOT_FOUND` for the id of no episode, and `REVISION_CONFLICT` with the reason `confirmation_required` for
    a deletion that nothing confirms."""
    wanted = call.input
    matched = _matched(tx.db, wanted.target)
    preview = _confirmation(tx, wanted, matched) if wanted.hard else None
    if not matched and targets.kind_of(wanted.target) == "id":
        not_found("episode", targets.episode_id(wanted.target) or "")
    if wanted.dry_run:
        return _previewed(tx, call, len(matched))
    if preview is not None:
        return _deleted(tx, call, matched, preview)
    return _forgotten(tx, call, matched)


def _matched(db: apsw.Connection, target: Target, *, seen: int | None = None) -> list[Episode]:
    """The versions that are meant: the current ones, or those at the commit `seen`. Raises `INVALID_REQUEST` for more
    than are forgotten at once."""
    if (episode_id := targets.episode_id(target)) is not None:
        found = episodes.current(db, episode_id) if seen is None else episodes.visible(db, episode_id, seen=seen)
        return [] if found is None else [found]
    most = limits.EPISODES_FORGOTTEN_MAX + 1
    if (prefix := targets.source_prefix(target)) is not None:
        if not prefix:
            invalid("target: an empty source prefix means everything; name what is to be forgotten")
        matched = episodes.by_source(db, prefix, first_after(prefix), seen=seen, most=most)
    elif (member := targets.metadata_member(target)) is not None:
        matched = episodes.by_metadata(db, *member, seen=seen, most=most)
    else:
        reading = targets.made_before(target)
        assert reading is not None, "a target is of one of these kinds"
        matched = episodes.made_before(db, reading, seen=seen, most=most)
    if len(matched) == most:
        invalid(f"target: more than {limits.EPISODES_FORGOTTEN_MAX} episodes match, too many at once; narrow it")
    return matched


def _confirmation(tx: Transaction, wanted: EpisodeForget, matched: Sequence[Episode]) -> Preview:
    """The dry run that confirms the deletion (§8.4): of no episode that it did not count."""
    receipt = wanted.confirmed_by
    if receipt is None:
        _unconfirmed("a hard delete needs the receipt of its dry run as `confirmation_token`")
    if targets.to_wire(receipt.target) != targets.to_wire(wanted.target):
        _unconfirmed("the receipt is of another target")
    preview = _preview_at(tx.db, receipt)
    if preview is None or preview.target != _canonical(wanted.target):
        _unconfirmed("no dry run here gave this receipt")
    if preview.used_by is not None:
        _unconfirmed("the receipt was used already")
    age = clock.from_stored(tx.now) - clock.from_stored(preview.created_at)
    if age > timedelta(seconds=limits.FORGET_PREVIEW_SECONDS_MAX):
        _unconfirmed(f"the receipt is older than {limits.FORGET_PREVIEW_SECONDS_MAX:g} seconds")
    counted = {episode.episode_id for episode in _matched(tx.db, wanted.target, seen=preview.row_id)}
    if more := sum(episode.episode_id not in counted for episode in matched):
        _unconfirmed(f"of {len(matched)} episodes that match now, {more} did not in the dry run")
    return preview


def _preview_at(db: apsw.Connection, receipt: ReceiptOf) -> Preview | None:
    try:
        reading = Lsn(**receipt.audit_lsn).reading
    except (TypeError, ValueError):
        return None
    commit_seq = episodes.commit_at(db, reading)
    if not commit_seq or Lsn.of(episodes.clock_of(db, commit_seq)) != Lsn.of(reading):
        return None
    return episodes.find_preview(db, commit_seq)


def _previewed(tx: Transaction, call: Call[EpisodeForget], matched: int) -> Applied:
    target = call.input.target
    commit_seq = _audited(tx, call, _receipt(target, matched, preview=True))
    preview = Preview(commit_seq, _canonical(target), matched, tx.now)
    episodes.insert_preview(tx.db, preview)
    tx.sum.add(episodes.preview_entry(preview))
    return _told(tx, _receipt(target, matched, preview=True), commit_seq)


def _forgotten(tx: Transaction, call: Call[EpisodeForget], matched: Sequence[Episode]) -> Applied:
    changes = []
    for episode in matched:
        artifact = tombstone(tx, artifacts.by_row(tx.db, episode.artifact_row), REASON)
        changes.append(Change("artifact", artifact.artifact_id, None, artifact.status))
    receipt = _receipt(call.input.target, len(matched), written=len(matched))
    return _told(tx, receipt, _audited(tx, call, receipt, changes))


def _deleted(tx: Transaction, call: Call[EpisodeForget], matched: Sequence[Episode], preview: Preview) -> Applied:
    """With what stood behind these ids before they were forgotten and used again. The words of the target go with what
    they were said of: a name may be what is to be forgotten."""
    doomed = [artifacts.by_row(tx.db, row) for row in episodes.artifact_rows(tx.db, matched)]
    used = episodes.use_preview(tx.db, preview, tx.commit_seq)
    tx.sum.replace(episodes.preview_entry(preview), episodes.preview_entry(used))
    _erase_target(tx, used.target)
    receipt = {**_receipt(call.input.target, len(matched), deleted=len(matched)), "target": {}}
    erased = erase_artifacts(tx, doomed, _payload(receipt), operation=FORGET)
    receipt["erasure"] = {
        "erasure_id": erased.erasure_id,
        "entities": erased.entities,
        "at": tx.now,
        "blobs": erased.blobs,
    }
    return _told(tx, receipt, tx.meta.commit_seq)


def _erase_target(tx: Transaction, target: str) -> None:
    """From everything that was ever done to it: that it was done is kept."""
    for preview in episodes.previews_of(tx.db, target):
        emptied = episodes.empty_preview(tx.db, preview)
        tx.sum.replace(episodes.preview_entry(preview), episodes.preview_entry(emptied))
    erasures.permit(tx.db, allowed=True)
    commits = episodes.commits_told_of(tx.db, FORGET, target)
    for commit in commits:
        event = events.at(tx.db, commit)
        payload = orjson.dumps({**orjson.loads(event.payload), "target": {}}).decode()
        after = event._replace(payload=payload)
        events.replace_content(tx.db, after)
        tx.sum.replace(events.entry(event), events.entry(after))
    for record in idempotency.of_commits(tx.db, commits):
        tx.sum.replace(idempotency.entry(record), idempotency.entry(idempotency.erase(tx.db, record)))
    erasures.permit(tx.db, allowed=False)


def _audited(
    tx: Transaction, call: Call[EpisodeForget], receipt: dict[str, Any], changes: Sequence[Change] = ()
) -> int:
    """One event of each forgetting, dry runs included (§8.5)."""
    return tx.record_event(
        FORGET, "forget", tx.new_id("fgt"), actor=call.input.actor, payload=_payload(receipt), also=changes
    )


def _payload(receipt: dict[str, Any]) -> dict[str, Any]:
    return {"kind": _AUDITED, **{name: receipt[name] for name in receipt if name != "matched"}}


def _receipt(
    target: Target, matched: int, *, written: int = 0, deleted: int = 0, preview: bool = False
) -> dict[str, Any]:
    return {
        "target": targets.to_wire(target),
        "indices_affected": list(INDICES),
        "matched": matched,
        "rows_written": written,
        "rows_deleted": deleted,
        "preview": preview,
    }


def _told(tx: Transaction, receipt: dict[str, Any], commit_seq: int) -> Applied:
    return Applied(Receipt(**receipt, audit_lsn=Lsn.of(tx.meta.hlc).to_wire()), commit_seq)


def _canonical(target: Target) -> str:
    return orjson.dumps(targets.to_wire(target), option=orjson.OPT_SORT_KEYS).decode()


def _unconfirmed(why: str) -> NoReturn:
    raise MemoreeError(Code.REVISION_CONFLICT, why, details={"reason": CONFIRMATION_REQUIRED})
