"""The handoff: what the next session must know, in at most 2,000 tokens (OKF contract §3.3). Every line of it says in
which node it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from memoree.okf import dates
from memoree.okf.discipline import AGREED, BLOCKED, IN_PROGRESS, normalised_status
from memoree.okf.ids import id_of, path_of
from memoree.okf.likeness import states
from memoree.okf.node import INBOX, MIRROR, Node
from memoree.okf.relations import links, resolved

Json: TypeAlias = dict[str, Any]

DAYS_DEFAULT = 14
DAYS_MAX = 3660
MARKDOWN_CHARS_MAX = 8000
"""2,000 tokens of four characters."""
BULLETS_MAX = 2
NEXT_BULLETS_MAX = 5
LINE_CHARS_MAX = 240
"""Of a title, a reason or a bullet in the text; the sections have the whole of it."""
SESSION_SHORTENED = "over budget: what the last session did and decided is left out"
TRUNCATED = "over budget: only active work and open questions are shown"
LINES_LEFT_OUT = "over budget: {count} lines are left out"
_BULLET = re.compile(r"^\s{0,3}(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?(.+)$")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)[\s#]*$")


@dataclass(frozen=True, slots=True)
class Session:
    node: Node
    date: str
    done: list[str] = field(default_factory=list)
    decided: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Handoff:
    """What is told, before it is cut to the budget. `decisions` come with their dates."""

    project: str | None
    days: int
    at_ms: int
    active: list[Node]
    decisions: list[tuple[Node, str]]
    plans: list[Node]
    session: Session | None

    @property
    def blocked(self) -> list[Node]:
        return [task for task in self.active if _status(task) == BLOCKED]

    @property
    def session_next(self) -> list[str]:
        return self.session.next[:NEXT_BULLETS_MAX] if self.session is not None else []

    def payload(self) -> Json:
        """The answer of the contract's tool."""
        markdown, warnings = self._within_budget()
        return {
            "markdown": markdown,
            "project": self.project,
            "days": self.days,
            "sections": {
                "active": [_item(task, **_work(task)) for task in self.active],
                "decisions": [_item(node, date=date) for node, date in self.decisions],
                "plans": [_item(plan, status=_status(plan)) for plan in self.plans],
                "lastSession": None if self.session is None else _told_session(self.session),
                "openQuestions": {
                    "blocked": [_item(task, reason=task.text("blocked_reason")) for task in self.blocked],
                    "sessionNext": self.session_next,
                },
            },
            "warnings": warnings,
        }

    def _within_budget(self) -> tuple[str, list[str]]:
        """The text, and what was left out of it: first what the session did, then all but what is open, then lines."""
        whole = self._markdown()
        if len(whole) <= MARKDOWN_CHARS_MAX:
            return whole, []
        if self.session is not None:
            shortened = replace(self, session=replace(self.session, done=[], decided=[]))._markdown()
            if len(shortened) <= MARKDOWN_CHARS_MAX:
                return shortened, [SESSION_SHORTENED]
        note = f"> {TRUNCATED}"
        lines = [*self._head(), "", note, *self._active(), *self._open_questions()]
        if len("\n".join(lines)) < MARKDOWN_CHARS_MAX:
            return "\n".join((*lines, "")), [TRUNCATED]
        kept, room = [], MARKDOWN_CHARS_MAX - len(LINES_LEFT_OUT) - 16
        for line in lines:
            room -= len(line) + 1
            if room < 0:
                break
            kept.append(line)
        left_out = LINES_LEFT_OUT.format(count=len(lines) - len(kept))
        return "\n".join((*kept, "", f"> {left_out}", "")), [TRUNCATED, left_out]

    def _markdown(self) -> str:
        session = self._last_session()
        parts = (self._head(), self._active(), self._decided(), self._planned(), session, self._open_questions())
        return "\n".join((*(line for part in parts for line in part), ""))

    def _head(self) -> list[str]:
        scope = f" — `{path_of(self.project)}`" if self.project is not None else ""
        return [f"# Handoff{scope}", "", f"As of {dates.date(self.at_ms)}, decisions of {self.days} days."]

    def _active(self) -> Iterator[str]:
        lines = []
        for task in self.active:
            reason = f": {_short(task.text('blocked_reason'))}" if _status(task) == BLOCKED else ""
            lines.append(f"- [{_status(task)}] {_cited(task)}{reason}")
        return _section("Active", lines)

    def _decided(self) -> Iterator[str]:
        return _section("Decisions", [f"- {date} {_cited(node)}" for node, date in self.decisions])

    def _planned(self) -> Iterator[str]:
        return _section("Plans", [f"- [{_status(plan)}] {_cited(plan)}" for plan in self.plans])

    def _last_session(self) -> Iterator[str]:
        if self.session is None:
            return _section("Last session", [])
        session, lines = self.session, [f"- {self.session.date or 'undated'} {_cited(self.session.node)}"]
        for heading, bullets in (("Done", session.done), ("Decided", session.decided), ("Next", session.next)):
            lines += [f"- {heading}: {_short(each)} (`{path_of(session.node.id)}`)" for each in bullets[:BULLETS_MAX]]
        return _section("Last session", lines)

    def _open_questions(self) -> Iterator[str]:
        lines = [f"- Blocked: {_cited(task)}: {_short(task.text('blocked_reason'))}" for task in self.blocked]
        if self.session is not None:
            path = path_of(self.session.node.id)
            lines += [f"- Next: {_short(each)} (`{path}`)" for each in self.session_next]
        return _section("Open questions", lines)


def handoff(nodes: Iterable[Node], *, at_ms: int, project: str | None = None, days: int = DAYS_DEFAULT) -> Handoff:
    """Of the nodes of a bundle; secrets, raw notes and what is replaced or forgotten are left out. `project` is an id,
    a path, or the last part of one."""
    settled = [node for node in nodes if node.id.partition("/")[0] not in (INBOX, MIRROR)]
    standing = states(settled, at_ms=at_ms)
    loaded = [
        node
        for node in settled
        if not (node.is_secret or node.is_reserved or node.is_deprecated or standing[node.id].is_stale)
    ]
    wanted = None if project is None else _project(project, loaded)
    tasks = _of_type(loaded, "task", wanted, ("project",))
    active = [
        *sorted((task for task in tasks if _status(task) == IN_PROGRESS), key=_by_title),
        *sorted((task for task in tasks if _status(task) == BLOCKED), key=_by_title),
    ]
    plans = [plan for plan in _of_type(loaded, "plan", wanted, ("covers",)) if _status(plan) in (AGREED, IN_PROGRESS)]
    decisions = list(_recent(_of_type(loaded, "decision", wanted, ("about",)), at_ms, days))
    matched = {node.id for node in (*active, *plans, *(node for node, _ in decisions))}
    sessions = [
        node for node in loaded if _kind(node) == "session" and (wanted is None or _linked(node) & (matched | {wanted}))
    ]
    last = max(sessions, key=_by_date, default=None)
    return Handoff(
        wanted,
        days,
        at_ms,
        active,
        decisions,
        sorted(plans, key=_by_title),
        None if last is None else _session(last),
    )


def bullets(body: str, heading: str) -> list[str]:
    """The items of a section of that heading, of the second level, without their marks."""
    found: list[str] = []
    inside = False
    for line in body.split("\n"):
        match = _HEADING.match(line)
        if match is not None and len(match[1]) <= 2:
            inside = len(match[1]) == 2 and match[2].strip().lower() == heading.lower()
        elif inside and (item := _BULLET.match(line)) is not None:
            found.append(item[1].strip())
    return found


def _session(node: Node) -> Session:
    return Session(
        node,
        node.text("date") or node.text("timestamp"),
        *(bullets(node.body, heading) for heading in ("Done", "Decided", "Next")),
    )


def _recent(decisions: Sequence[Node], at_ms: int, days: int) -> Iterator[tuple[Node, str]]:
    """Those within so many days, the newest first; one that is dated to come is within them."""
    dated = [(instant, node) for node in decisions if (instant := _decided_ms(node)) is not None]
    for instant, node in sorted(dated, key=lambda each: (-each[0], each[1].id)):
        if instant >= at_ms - days * dates.DAY_MS:
            yield node, dates.date(instant)


def _decided_ms(node: Node) -> int | None:
    for name in ("agreed_on", "date", "timestamp"):
        if (instant := dates.milliseconds(node.text(name))) is not None:
            return instant
    return None


def _of_type(nodes: Sequence[Node], kind: str, project: str | None, keys: tuple[str, ...]) -> list[Node]:
    return [node for node in nodes if _kind(node) == kind and (project is None or project in _targets(node, keys))]


def _targets(node: Node, keys: tuple[str, ...]) -> set[str]:
    """Ids that these relations name. A task may have its project as a plain field, too (DV-5)."""
    named = [target for key, target in node.relations if key.strip().lower() in keys]
    named += [target for key in keys if key == "project" for target in node.entries(key)]
    return {id_of(target.lstrip("/")) for target in named}


def _linked(node: Node) -> set[str]:
    """Ids of everything that a node points at."""
    folder = node.id.rpartition("/")[0]
    paths = [resolved(target) for _, target in node.relations]
    paths += [resolved(target, folder=folder) for target in links(node.body)]
    return {id_of(path) for path in paths if path is not None}


def _project(given: str, nodes: Sequence[Node]) -> str:
    """The id that `lumen`, `projects/lumen` or `/projects/lumen.md` mean; as given where nothing is named so."""
    name = id_of(given.strip().lstrip("/"))
    ids = [node.id for node in nodes]
    if name in ids:
        return name
    ending = sorted(
        (each for each in ids if each.endswith(f"/{name}")), key=lambda each: (each != f"projects/{name}", each)
    )
    return ending[0] if ending else name if "/" in name else f"projects/{name}"


def _section(heading: str, lines: Sequence[str]) -> Iterator[str]:
    yield from ("", f"## {heading}", "")
    yield from lines or ["(none)"]


def _item(node: Node, **more: Any) -> Json:
    return {"id": node.id, "path": path_of(node.id), "title": node.title or node.id, **more}


def _work(task: Node) -> Json:
    blocked = {"blockedReason": task.text("blocked_reason")} if _status(task) == BLOCKED else {}
    return {"status": _status(task), **blocked}


def _told_session(session: Session) -> Json:
    told = _item(session.node, date=session.date, engine=session.node.text("engine"))
    return told | {
        "done": session.done[:BULLETS_MAX],
        "decided": session.decided[:BULLETS_MAX],
        "next": session.next[:BULLETS_MAX],
    }


def _cited(node: Node) -> str:
    return f"{_short(node.title or node.id)} (`{path_of(node.id)}`)"


def _short(text: str) -> str:
    """On one line, so that no title makes lines of its own."""
    line = " ".join(text.split())
    return line if len(line) <= LINE_CHARS_MAX else f"{line[: LINE_CHARS_MAX - 1]}…"


def _kind(node: Node) -> str:
    return node.native_type.lower()


def _status(node: Node) -> str:
    return normalised_status(node.text("status"))


def _by_title(node: Node) -> tuple[str, str]:
    return node.title.lower(), node.id


def _by_date(node: Node) -> tuple[int, int, str]:
    lowest = -(2**62)
    days, instant = (dates.milliseconds(node.text(name)) for name in ("date", "timestamp"))
    return (lowest if days is None else days, lowest if instant is None else instant, node.id)
