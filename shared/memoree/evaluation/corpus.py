"""The corpus: what is stored (seeds) and what is asked (cases), as files of JSON lines.

A directory holds any number of `seeds-*.jsonl` and `cases-*.jsonl`; docs/evaluation.md describes their members. Seeds
name each other by symbolic refs: `@ref` is an entity's id, `@ref!` its newest revision.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from memoree.envelope import AmbientContext, WireModel
from memoree.errors import invalid, shown

EntityType = Literal["artifact", "claim"]
Presence = Literal["claims", "artifacts_only", "none"]
CREATES: dict[str, EntityType] = {"artifact.put": "artifact", "claim.assert": "claim"}
REFERENCE = re.compile(r"@([A-Za-z0-9_.-]+)(!?)")

Line = TypeVar("Line", bound=WireModel)


class Seed(WireModel):
    """One write. `ref` names what it makes; seeds that change something have a ref that nothing else uses."""

    ref: str
    op: Literal[
        "artifact.put",
        "artifact.revise",
        "artifact.forget",
        "claim.assert",
        "claim.revise",
        "claim.retract",
        "relation.put",
    ]
    context: AmbientContext
    input: dict[str, Any]

    @model_validator(mode="after")
    def _evidence_is_quoted(self) -> Seed:
        for item in self.input.get("evidence", ()):
            if not isinstance(item, dict) or not {"artifact"} <= item.keys() <= {"artifact", "quote"}:
                raise ValueError("evidence is an artifact and a quote of it")
        return self

    def references(self) -> Iterator[str]:
        """The refs this seed needs to have been stored before."""
        for name, value in self.input.items():
            if name.endswith("_id") and isinstance(value, str) and (found := REFERENCE.fullmatch(value)):
                yield found[1]
        for item in self.input.get("evidence", ()):
            yield str(item["artifact"]).removeprefix("@")


class Case(WireModel):
    """One question and what a careful reader of the seeds expects of its answer.

    `claims` and `artifacts` must be among the answers, `acceptable` ones may be, `negatives` say other things in the
    same words, `forbidden` ones must not appear. `first` must lead its list; `answer` must stand in an excerpt.
    """

    id: str
    name: Annotated[str, Field(alias="class")]
    query: str
    context: AmbientContext
    input: dict[str, Any]
    presence: Presence
    claims: list[str]
    artifacts: list[str]
    acceptable: list[str]
    negatives: list[str]
    forbidden: list[str]
    conflicts: list[tuple[str, str]]
    absent: list[str]
    why: str
    first: str | None = None
    answer: str | None = None

    @property
    def expected(self) -> list[str]:
        return [*self.claims, *self.artifacts]

    def references(self) -> Iterator[str]:
        yield from (*self.expected, *self.acceptable, *self.negatives, *self.forbidden)
        for pair in self.conflicts:
            yield from pair
        if self.first is not None:
            yield self.first


@dataclass(frozen=True, slots=True)
class Corpus:
    """Seeds in the order of their writes, cases in the order of their files."""

    seeds: Sequence[Seed]
    cases: Sequence[Case]

    def select(self, classes: Sequence[str] = (), ids: Sequence[str] = ()) -> Corpus:
        """All seeds with only the cases of these classes or ids. Raises `INVALID_REQUEST` for a name that is none."""
        for kind, names, known in (
            ("class", classes, {case.name for case in self.cases}),
            ("case", ids, {case.id for case in self.cases}),
        ):
            if strangers := [name for name in names if name not in known]:
                invalid(f"the corpus has no {kind} {shown(strangers[0])}")
        if not classes and not ids:
            return self
        return Corpus(self.seeds, [case for case in self.cases if case.name in classes or case.id in ids])


def bundled(*, held_out: bool = False) -> Traversable:
    """The directory of a corpus that belongs to the program."""
    return resources.files(__package__) / ("heldout" if held_out else "corpus")


def read_corpus(directory: Traversable) -> Corpus:
    """Raises `INVALID_REQUEST`, naming file and line, for a directory without seeds or cases and for lines that are
    wrong or refer to what is not there."""
    seeds = list(_lines(directory, "seeds", Seed))
    cases = list(_lines(directory, "cases", Case))
    made: set[str] = set()
    for where, seed in seeds:
        _require(made, seed.references(), where)
        if seed.op in CREATES:
            made.add(seed.ref)
    for where, case in cases:
        _require(made, case.references(), where)
        if (case.presence == "none") != (not case.expected):
            invalid(f"{where}: presence {case.presence} does not agree with what is expected")
    _require_unique((where, seed.ref) for where, seed in seeds)
    _require_unique((where, case.id) for where, case in cases)
    return Corpus([seed for _, seed in seeds], [case for _, case in cases])


def _require(made: Collection[str], references: Iterable[str], where: str) -> None:
    for ref in references:
        if ref not in made:
            invalid(f"{where}: no seed before it makes {shown(ref)}")


def _require_unique(names: Iterable[tuple[str, str]]) -> None:
    seen: set[str] = set()
    for where, name in names:
        if name in seen:
            invalid(f"{where}: {shown(name)} is there twice")
        seen.add(name)


def _lines(directory: Traversable, kind: str, model: type[Line]) -> Iterator[tuple[str, Line]]:
    """The objects of all files of a kind, at least one, each with where it stands."""
    files = sorted((entry for entry in _entries(directory) if _is_of(entry, kind)), key=lambda entry: entry.name)
    lines = [
        (f"{file.name}:{number}", line)
        for file in files
        for number, line in enumerate(file.read_bytes().splitlines(), start=1)
    ]
    if not lines:
        invalid(f"{directory} holds no {kind}-*.jsonl with anything in it")
    for where, line in lines:
        try:
            yield where, model.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            invalid(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}")


def _entries(directory: Traversable) -> Iterable[Traversable]:
    try:
        return list(directory.iterdir())
    except OSError as error:
        invalid(f"the corpus {directory} cannot be read: {error.strerror}")


def _is_of(entry: Traversable, kind: str) -> bool:
    return entry.name.startswith(f"{kind}-") and entry.name.endswith(".jsonl")
