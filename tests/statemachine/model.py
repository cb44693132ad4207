"""The machine protocol as a plain program: every rule of the contract over dictionaries and lists.

`Model.answer` gives the whole response envelope of a request (§1.2) in the processing order of §1.3. What each
operation does stands in the modules beside this one, in the order in which the contract checks it (§4). Messages,
hints and the advice in details are free text, and stand in an answer as `TEXT`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from contract.door import RETRYABLE, Json
from contract.fields import INPUTS, is_well_formed
from contract.protocol import CATALOGUE

from .entities import Artifact, Case, Claim, Context, Feedback, Projection, Relation, Source, canonical

TEXT: Final = "text~"
"""In an answer: some text that is not blank."""
MAYBE_TEXT: Final = "text~?"
"""In an answer: the same, or no such member."""


class Including(dict[str, Any]):
    """In an answer: an object with at least these members."""


class Unordered(list[Any]):
    """In an answer: exactly these items, in any order."""


class Ranked(list[Any]):
    """In an answer: the first of these items, the latest first and those of one instant by the service's ids."""

    def __init__(self, items: list[Json], instant: str, id: str, limit: int) -> None:
        super().__init__(items)
        self.instant, self.id, self.limit = instant, id, limit


HINTED = {
    "NO_AMBIENT_CONTEXT", "REVISION_CONFLICT", "IDEMPOTENCY_CONFLICT", "INDEX_NOT_READY", "SCOPE_VIOLATION",
}  # fmt: skip
ROWS = {row.name: row for row in CATALOGUE}
_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII)


class Refused(Exception):
    """`kind` tells refusals of one code apart: by the rules of the operation, or by the faults of a citation."""

    def __init__(self, code: str, details: Json | None = None, kind: str = "") -> None:
        super().__init__(code)
        self.code = code
        self.details = details
        self.kind = kind

    @property
    def outcome(self) -> str:
        return f"{self.code}:{self.kind}" if self.kind else self.code


class Replayed(Exception):
    """The request was answered before, and this is what it was told."""

    def __init__(self, done: Done) -> None:
        super().__init__()
        self.done = done


@dataclass(frozen=True)
class Done:
    """A mutation's record, the commit it belongs to, and whether it made an entity (§4.0.5)."""

    record: Json
    commit_seq: int
    created: bool = True

    def acknowledgement(self, created: bool) -> Json:
        return self.record | {"commit_seq": self.commit_seq, "created": created}


@dataclass(frozen=True)
class Commit:
    seq: int
    at: str


def invalid() -> NoReturn:
    """Refuse what is well-formed, and yet against a rule of the operation."""
    raise Refused("INVALID_REQUEST", kind="rule")


def not_found() -> NoReturn:
    raise Refused("NOT_FOUND")


Handler = Callable[["Call"], Any]
_handlers: dict[str, Handler] = {}


def operation(name: str) -> Callable[[Handler], Handler]:
    """What decides the requests of one operation: from a `Call` to a result, or to `Done` for a mutation."""

    def declare(handler: Handler) -> Handler:
        _handlers[name] = handler
        return handler

    return declare


@dataclass
class Model:
    """A whole store. `commit_seq` is the number of the last commit."""

    commit_seq: int = 0
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    projections: dict[str, Projection] = field(default_factory=dict)
    feedback: list[Feedback] = field(default_factory=list)
    recorded: dict[tuple[str, str, str, str], tuple[str, Done]] = field(default_factory=dict)
    """Idempotency records: namespace and key to the identity of the request and its outcome (§1.7)."""
    names: Counter[str] = field(default_factory=Counter)
    outcome: str = ""
    """Of the last request: `created`, `changed`, `no-op`, `replay`, `read`, or an error code."""

    def answer(self, request: Json, now: datetime | None = None) -> Json:
        """The response envelope; `now` is the service's clock, when it is known."""
        try:
            success = self._decided(request, now)
        except Refused as refusal:
            self.outcome = refusal.outcome
            return _failure(request, refusal)
        return {"v": 1, "request_id": request["request_id"], "ok": True, "warnings": []} | success

    def _decided(self, request: Json, now: datetime | None) -> Json:
        """The members of a success. Steps 4 to 9 of the processing order; programs keep clear of the first three."""
        row, input = ROWS[request["op"]], request["input"]
        context = Context.of(request["context"]) if "context" in request else None
        malformed = Refused("INVALID_REQUEST")
        well_formed = is_well_formed(INPUTS[row.name], input)
        if row.mutating and not request.get("idempotency_key"):
            raise malformed
        if row.horizon and not well_formed:
            raise malformed
        if row.needs_context and context is None:
            raise Refused("NO_AMBIENT_CONTEXT")
        horizon = input.get("horizon", "ambient") if row.horizon else "ambient"
        if horizon != "ambient" and not (input.get("reason") or "").strip():
            raise malformed
        if not well_formed:
            raise malformed
        given = {name: value for name, value in input.items() if value is not None}
        call = Call(self, row.name, given, context, request, now)
        echo = {} if context is None else {"context": _resolved(context, request, horizon)}
        if not row.mutating:
            self.outcome = "read"
            return echo | {"result": _handlers[row.name](call)}
        return echo | self._mutated(call)

    def _mutated(self, call: Call) -> Json:
        before = self.commit_seq
        try:
            done: Done = _handlers[call.op](call)
        except Replayed as replayed:
            self.outcome = "replay"
            done, created = replayed.done, False
        else:
            created = done.created
            self.outcome = "no-op" if self.commit_seq == before else "created" if created else "changed"
            self.recorded[call.namespaced_key] = call.identity, done
        return {"commit_seq": done.commit_seq, "result": done.acknowledgement(created)}

    def named(self, kind: str) -> str:
        """The name of a new entity."""
        self.names[kind] += 1
        return f"{kind}~{self.names[kind]}"


def _resolved(context: Context, request: Json, horizon: str) -> Json:
    return context.to_wire(context.pins) | {
        "resolved_from": request.get("context_source", "none"),
        "horizon": horizon,
        "broadened": horizon != "ambient",
    }


def _failure(request: Json, refusal: Refused) -> Json:
    error = {
        "code": refusal.code,
        "message": TEXT,
        "retryable": refusal.code in RETRYABLE,
        "details": refusal.details,
    }
    if refusal.code in HINTED:
        error["hint"] = TEXT
    return {"v": 1, "request_id": request["request_id"], "ok": False, "error": error, "warnings": []}


@dataclass(frozen=True)
class Call:
    """One well-formed request. `input` holds no nulls: null is the same as absent where it is allowed (§0.2)."""

    model: Model
    op: str
    input: Json
    context_or_none: Context | None
    request: Json
    now: datetime | None

    @property
    def context(self) -> Context:
        assert self.context_or_none is not None
        return self.context_or_none

    @property
    def owner(self) -> Context:
        """Of what this request makes: its context without the pins (§2.7)."""
        context = self.context
        return Context(context.workspace, context.project, context.task, context.component)

    def must_own(self, owner: Context) -> None:
        if not self.context.same_scope(owner):
            raise Refused("SCOPE_VIOLATION")

    @property
    def namespaced_key(self) -> tuple[str, str, str, str]:
        context = self.context
        return context.workspace, context.project, context.task or "", self.request["idempotency_key"]

    @property
    def identity(self) -> str:
        """What makes two requests the same, §1.7."""
        return canonical([self.op, self.request["context"], self.request["input"]])

    def replay_or_go_on(self) -> None:
        """The point at which an operation looks up its key."""
        recorded = self.model.recorded.get(self.namespaced_key)
        if recorded is None:
            return
        identity, done = recorded
        if identity != self.identity:
            raise Refused("IDEMPOTENCY_CONFLICT", {"idempotency_key": self.request["idempotency_key"]})
        raise Replayed(done)

    def commit(self) -> Commit:
        """Take the next commit number, and with it the service's instant of that commit (§1.8)."""
        self.model.commit_seq += 1
        return Commit(self.model.commit_seq, f"at~{self.model.commit_seq}")

    def page(
        self, found: list[Any], cursor: str, number: Callable[[Any], int], limit: int = 100
    ) -> tuple[list[Any], Json]:
        """A page of what stands newest first, behind the exclusive cursor, and its closing members."""
        before = self.input.get(cursor)
        rest = [each for each in found if before is None or number(each) < before]
        shown = rest[: self.input.get("limit", limit)]
        if len(shown) == len(rest):
            return shown, {"truncated": False}
        return shown, {"truncated": True, f"next_{cursor}": number(shown[-1])}


def instant(sent: str) -> datetime:
    """A timestamp of the input as an instant. Raises `INVALID_REQUEST` for what is no RFC 3339 with a zone (§5.3)."""
    if _RFC3339.fullmatch(sent) is None:
        invalid()
    try:
        return datetime.fromisoformat(sent).astimezone(UTC)
    except (ValueError, OverflowError):
        invalid()


def wire(moment: datetime) -> str:
    """UTC with `Z` and a fraction of 0, 3 or 6 digits (§5.3)."""
    text = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    seconds, fraction = text.split(".")
    if fraction == "000000":
        return f"{seconds}Z"
    return f"{seconds}.{fraction.removesuffix('000')}Z"
