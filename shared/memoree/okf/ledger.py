"""The ledger: what agents did on which topic, and which failures are still open (OKF contract §3.2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import orjson

from memoree.errors import invalid, shown
from memoree.okf import dates
from memoree.okf.hygiene import Activity
from memoree.okf.ids import agent_name, id_of
from memoree.okf.node import SECRET

Phase = Literal["start", "step", "done", "fail", "block", "note"]
Status = Literal["ok", "wip", "partial", "fail"]
PHASES: tuple[str, ...] = get_args(Phase)
STATUSES: tuple[str, ...] = get_args(Status)
FAILURES = frozenset(("fail", "block"))
DONE, OK = "done", "ok"

LEDGER_BYTES_MAX = 64 * 1024 * 1024
LINE_BYTES_MAX = 64 * 1024
TOPIC_BYTES_MAX = 512
ACTION_BYTES_MAX = 8 * 1024
REFERENCE_BYTES_MAX = 1024
QUARANTINED = "[quarantined: {labels}] "

Json: TypeAlias = dict[str, Any]
Detect: TypeAlias = Callable[[str], Sequence[str]]
"""Labels of what looks like an instruction in a text."""


@dataclass(frozen=True, slots=True)
class Event:
    """`topic` is the id of a node or any other name, `matches` are labels of what was found in the text."""

    ts_ms: int
    actor: str
    topic: str
    phase: str
    status: str
    action: str
    artifact: str | None = None
    ref: str | None = None
    matches: tuple[str, ...] = ()

    @property
    def quarantine(self) -> bool:
        return bool(self.matches)

    @property
    def is_failure(self) -> bool:
        return self.phase in FAILURES

    @property
    def closes(self) -> bool:
        """Whether an earlier failure of its topic is over."""
        return self.phase == DONE or self.status == OK

    def to_json(self) -> Json:
        """As a line of a ledger has it."""
        return {
            "ts": dates.iso(self.ts_ms),
            "actor": self.actor,
            "topic": self.topic,
            "phase": self.phase,
            "status": self.status,
            "action": self.action,
            "artifact": self.artifact,
            "ref": self.ref,
            "quarantine": self.quarantine,
            "matches": list(self.matches),
        }

    def told(self) -> Json:
        """As readers are told of it: text that looks like an instruction says so itself (SEC-7)."""
        if not self.quarantine:
            return self.to_json()
        return {**self.to_json(), "action": QUARANTINED.format(labels=", ".join(self.matches)) + self.action}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, how many events it has, whether its last failure is open, and its last event."""

    topic: str
    count: int
    open: bool
    last: Event

    def to_json(self) -> Json:
        last = f"{self.last.phase}/{self.last.status}"
        return {"topic": self.topic, "count": self.count, "open": self.open, "last": last}


@dataclass(frozen=True, slots=True)
class Summary:
    """Topics, those with the latest events first, and failures that are open, earliest first."""

    topics: list[Topic]
    open_failures: list[Event]


def made(
    *,
    ts_ms: int,
    actor: str | None,
    topic: str,
    phase: str,
    action: str,
    status: str | None,
    artifact: str | None,
    ref: str | None,
    detect: Detect,
) -> Event:
    """A new event. What looks like an instruction is kept and labelled. Raises `INVALID_REQUEST` for a phase or status
    that is none, a blank topic or action, and for what is too long."""
    if phase not in PHASES:
        invalid(f"phase: one of {', '.join(PHASES)}, not {shown(phase)}")
    known_status = OK if status is None else status
    if known_status not in STATUSES:
        invalid(f"status: one of {', '.join(STATUSES)}, not {shown(status)}")
    topic, action = _required("topic", topic, TOPIC_BYTES_MAX), _required("action", action, ACTION_BYTES_MAX)
    artifact, ref = _optional("artifact", artifact), _optional("ref", ref)
    scanned = "\n".join(each for each in (action, topic, artifact, ref) if each)
    labels = tuple(detect(scanned))
    return Event(ts_ms, agent_name(actor), topic, phase, known_status, action, artifact, ref, labels)


def read(data: bytes) -> tuple[list[Event], int]:
    """The events of a ledger file in the order of its lines, and how many lines are none; these are passed over."""
    if len(data) > LEDGER_BYTES_MAX:
        invalid(f"a ledger has at most {LEDGER_BYTES_MAX} bytes, this one {len(data)}")
    found, skipped = [], 0
    for line in data.split(b"\n"):
        if line.strip():
            event = event_of(line)
            if event is None:
                skipped += 1
            else:
                found.append(event)
    return found, skipped


def event_of(line: bytes) -> Event | None:
    """The event in a line; `None` for a line that is none."""
    if len(line) > LINE_BYTES_MAX:
        return None
    try:
        fields = orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return None
    return of_json(fields)


def of_json(fields: object) -> Event | None:
    if not isinstance(fields, dict):
        return None
    ts, actor, topic, phase, action = (fields.get(name) for name in ("ts", "actor", "topic", "phase", "action"))
    status, matches = fields.get("status") or OK, fields.get("matches") or []
    ts_ms = dates.milliseconds(ts) if isinstance(ts, str) else None
    if ts_ms is None or phase not in PHASES or status not in STATUSES or not isinstance(matches, list):
        return None
    if not isinstance(topic, str) or not topic.strip() or not isinstance(action, str):
        return None
    labels = tuple(str(each) for each in matches) or (("unknown",) if fields.get("quarantine") is True else ())
    return Event(
        ts_ms,
        actor if isinstance(actor, str) else "",
        topic,
        str(phase),
        str(status),
        action,
        _text_or_none(fields.get("artifact")),
        _text_or_none(fields.get("ref")),
        labels,
    )


def summary(events: Iterable[Event]) -> Summary:
    """Of events in the order of their lines; those of one instant happened in that order."""
    by_topic: dict[str, list[Event]] = {}
    for event in events:
        by_topic.setdefault(event.topic, []).append(event)
    topics, failures = [], []
    for name, of_topic in by_topic.items():
        of_topic.sort(key=_instant)
        failure = open_failure(of_topic)
        topics.append(Topic(name, len(of_topic), failure is not None, of_topic[-1]))
        if failure is not None:
            failures.append(failure)
    topics.sort(key=lambda topic: (-topic.last.ts_ms, topic.topic))
    failures.sort(key=lambda event: (event.ts_ms, event.topic))
    return Summary(topics, failures)


def open_failure(of_topic: Sequence[Event]) -> Event | None:
    """The last failure of a topic, unless something ended it. Its events are in the order of time."""
    for at in range(len(of_topic) - 1, -1, -1):
        if of_topic[at].is_failure:
            return of_topic[at]
        if of_topic[at].closes:
            return None
    return None


def activities(events: Iterable[Event]) -> dict[str, Activity]:
    """What the ranker asks of topics."""
    found: dict[str, Activity] = {}
    for event in events:
        before = found.get(event.topic)
        found[event.topic] = (
            Activity(1, event.ts_ms) if before is None else Activity(before.count + 1, max(before.last_ms, event.ts_ms))
        )
    return found


def visible(events: Iterable[Event], secret_ids: AbstractSet[str]) -> Iterator[Event]:
    """Events that tell nothing of a secret node (SEC-7)."""
    return (event for event in events if not is_secret(event, secret_ids))


def is_secret(event: Event, secret_ids: AbstractSet[str]) -> bool:
    """Whether an event is about a secret node, or names one anywhere: then all of it is kept back."""
    if any(names_secret(each, secret_ids) for each in (event.topic, event.artifact, event.ref) if each):
        return True
    return bool(_SECRET_PATH.search(event.action)) or any(each in event.action for each in secret_ids)


def names_secret(topic: str, secret_ids: AbstractSet[str]) -> bool:
    """Whether a topic is the id of a secret node, however it is spelt, the end of one, or lies in a secret folder."""
    name = id_of(topic.strip().lstrip("/").removesuffix("/"))
    if SECRET in (each.lower() for each in name.split("/")[:-1]):
        return True
    folded = name.casefold()
    return any(folded == each.casefold() or each.casefold().endswith(f"/{folded}") for each in secret_ids)


_SECRET_PATH = re.compile(rf"(?:^|[^\w]){SECRET}/\w", re.IGNORECASE)


def _instant(event: Event) -> int:
    return event.ts_ms


def _required(name: str, text: str, bytes_max: int) -> str:
    if not text.strip():
        invalid(f"{name}: must not be blank")
    return _within(name, text.strip(), bytes_max)


def _optional(name: str, text: str | None) -> str | None:
    return None if text is None or not text.strip() else _within(name, text.strip(), REFERENCE_BYTES_MAX)


def _within(name: str, text: str, bytes_max: int) -> str:
    if (size := len(text.encode(errors="surrogatepass"))) > bytes_max:
        invalid(f"{name}: must have at most {bytes_max} bytes, got {size}")
    return text


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
