"""Statuses of work and ideas, moves between them, and how a new node of each type is written (OKF contract §5, §6)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from memoree.errors import invalid, shown
from memoree.okf import dates, editing
from memoree.okf.frontmatter import Entry
from memoree.okf.ids import SUFFIX
from memoree.okf.node import parse
from memoree.okf.relations import SUPERSEDES

BLOCKED, REJECTED, ADOPTED, SUPERSEDED = "blocked", "rejected", "adopted", "superseded"
IN_PROGRESS, AGREED = "in-progress", "agreed"
SPARK, INCUBATING = "spark", "incubating"

PLAN_STATUSES = ("draft", AGREED, IN_PROGRESS, "done", SUPERSEDED)
TASK_STATUSES = ("backlog", IN_PROGRESS, "done", BLOCKED)
IDEA_STATUSES = (SPARK, INCUBATING, ADOPTED, REJECTED)
STATUSES: Mapping[str, tuple[str, ...]] = {"plan": PLAN_STATUSES, "task": TASK_STATUSES, "idea": IDEA_STATUSES}
"""By type in lower case, in the order in which messages list them. Other types have no status."""

REASONS: Mapping[tuple[str, str], str] = {
    ("task", BLOCKED): "blocked_reason",
    ("idea", REJECTED): "rejected_reason",
}
"""The field that a status of a type must not be without."""

_STEPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "plan": {
        "draft": (AGREED, SUPERSEDED),
        AGREED: (IN_PROGRESS, SUPERSEDED),
        IN_PROGRESS: ("done", SUPERSEDED),
        "done": (SUPERSEDED,),
    },
    "task": {each: tuple(other for other in TASK_STATUSES if other != each) for each in TASK_STATUSES},
    "idea": {SPARK: (INCUBATING, REJECTED), INCUBATING: (ADOPTED, REJECTED), ADOPTED: (REJECTED,)},
}
SLUG_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class Form:
    """What a node of a type is made of: its folder, the status it begins with, fields and relations that it cannot do
    without, and the headings of its sections."""

    folder: str
    status: str | None = None
    fields: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()


FORMS: Mapping[str, Form] = {
    "Plan": Form("projects", "draft", (), (), ("Stages", "Risks")),
    "Decision": Form("concepts", None, ("agreed_on",), (), ("Context",)),
    "Task": Form("projects", "backlog"),
    "Session": Form("concepts", None, ("engine", "date"), (), ("Done", "Decided", "Next")),
    "Analysis": Form("concepts", None, ("period",), (), ("Facts observed", "Pattern", "Implications")),
    "Research": Form("concepts", None, ("source",), (), ("Question", "Findings", "Verdict")),
    "Idea": Form("concepts", SPARK, (), (), ("Essence", "Why now", "Reflections")),
}


@dataclass(frozen=True, slots=True)
class Draft:
    """A node that is to be written. `sections` are texts by heading; headings that the type has and the draft has not
    are written empty. `supersedes` are ids."""

    type: str
    title: str
    timestamp_ms: int
    description: str = ""
    tags: Sequence[str] = ()
    fields: Mapping[str, Entry] = field(default_factory=dict)
    relations: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)
    supersedes: Sequence[str] = ()


def normalised_status(written_status: str) -> str:
    return written_status.strip().lower()


def may_become(node_type: str, current: str, wanted: str) -> bool:
    """Whether a node of a type may go from one status to the other. From what is no status it may go to any."""
    kind = node_type.strip().lower()
    known = STATUSES.get(kind, ())
    now, then = normalised_status(current), normalised_status(wanted)
    if then not in known:
        return False
    return now not in known or now == then or then in _STEPS[kind].get(now, ())


def check_status(node_type: str, status: str, reason: str | None) -> None:
    """Raises `INVALID_REQUEST` for a status that the type does not have, and for one without the reason it needs or
    with one it has no place for."""
    kind = node_type.strip().lower()
    known = STATUSES.get(kind)
    if known is None:
        invalid(f"a {node_type} has no status")
    if status not in known:
        invalid(f"status: a {node_type} is one of {', '.join(known)}, not {shown(status)}")
    needed = REASONS.get((kind, status))
    if needed is not None and not (reason or "").strip():
        invalid(f"{needed}: a {node_type} that is {status} needs one")
    if needed is None and reason is not None:
        invalid(f"a reason belongs to a {node_type} that is blocked or rejected, not to one that is {status}")


def path_for(draft: Draft) -> str:
    """Where a node of this type and title goes by custom, as `projects/task-mend-the-oven.md`."""
    slug = re.sub(r"[\W_]+", "-", unicodedata.normalize("NFC", draft.title).lower()).strip("-")
    name = slug[:SLUG_CHARS_MAX].rstrip("-") or dates.date(draft.timestamp_ms)
    return f"{_form(draft.type).folder}/{draft.type.lower()}-{name}{SUFFIX}"


def render(draft: Draft) -> bytes:
    """The file of a new node. Supersession is written in both spellings, so that every reader finds it (DV-2).

    Raises `INVALID_REQUEST` for an unknown type, for what the type cannot do without, and for a status that is none."""
    form = _form(draft.type)
    if not draft.title.strip():
        invalid("title: a node needs one")
    for name in form.fields:
        if not _stated(draft.fields.get(name, "")):
            invalid(f"{name}: a {draft.type} needs one")
    for key in form.relations:
        if not draft.relations.get(key):
            invalid(f"relations.{key}: a {draft.type} needs one")
    fields: dict[str, Entry] = {"type": draft.type, "title": draft.title}
    if draft.description:
        fields["description"] = draft.description
    if draft.tags:
        fields["tags"] = list(draft.tags)
    if form.status is not None:
        fields["status"] = form.status
    fields |= {name: value for name, value in draft.fields.items() if _stated(value)}
    _check_fields(draft.type, form, fields)
    fields["timestamp"] = dates.iso(draft.timestamp_ms)
    superseded = [f"/{each}{SUFFIX}" for each in draft.supersedes]
    if superseded:
        fields[SUPERSEDES] = superseded[0] if len(superseded) == 1 else superseded
    relations = {key: list(paths) for key, paths in draft.relations.items() if paths}
    if superseded:
        relations[SUPERSEDES] = superseded
    data = "\n".join((*_front_matter(fields, relations), *_body(draft, form))).encode()
    node = parse("", data)
    assert node.problem is None and node.supersedes == superseded, "what was written reads back"
    return data


def _form(node_type: str) -> Form:
    form = FORMS.get(node_type)
    if form is None:
        invalid(f"type: one of {', '.join(FORMS)}, not {shown(node_type)}")
    return form


def _stated(value: Entry) -> bool:
    return bool(value.strip() if isinstance(value, str) else value)


def _check_fields(node_type: str, form: Form, fields: Mapping[str, Entry]) -> None:
    status = fields.get("status")
    if form.status is None:
        if status is not None:
            invalid(f"status: a {node_type} has none")
        return
    if not isinstance(status, str):
        invalid("status: must be one word")
    reasons = [name for (kind, _), name in REASONS.items() if kind == node_type.lower() and name in fields]
    reason = fields[reasons[0]] if reasons else None
    check_status(node_type, status, reason if reason is None or isinstance(reason, str) else ", ".join(reason))


def _front_matter(fields: Mapping[str, Entry], relations: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Relations stand in the form that the line dialect of the reference program reads, too."""
    yield "---"
    for name, value in fields.items():
        yield editing.line(name, value)
    if relations:
        yield "relations:"
    for key, paths in relations.items():
        if len(paths) == 1:
            yield f"  {editing.line(key, paths[0])}"
        else:
            yield f"  {key}:"
            yield from (f"    - {editing.scalar(path)}" for path in paths)
    yield "---"


def _body(draft: Draft, form: Form) -> Iterator[str]:
    yield from ("", f"# {draft.title}")
    if draft.description:
        yield from ("", draft.description)
    for heading in dict.fromkeys((*form.sections, *draft.sections)):
        yield from ("", f"## {heading}")
        if text := draft.sections.get(heading, "").strip():
            yield from ("", text)
    yield ""
