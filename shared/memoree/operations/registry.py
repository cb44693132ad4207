"""What an operation is, and the catalogue of those that exist.

A read has one function over a `View`. A mutation has three, run in this order (machine protocol §1.7):
`before_replay` tests existence and write scope, then the idempotency record is looked up, then `apply` tests the
state and makes the change. `before_replay` only reads, so an api may run it on a snapshot before answering an
exact replay.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

import memoree.operations

if TYPE_CHECKING:
    from memoree.operations.call import Call
    from memoree.operations.content import ContentInput
    from memoree.operations.view import Applied, Transaction, View

INTERNAL = 0
"""The position of operations that no door takes."""
EXTENSION = -1
"""The position of operations that every door takes, and that are none of the machine protocol's."""
Scope = Literal["recall", "ingest", "forget", "inbox", "admin"]


ReadFunction = Callable[["View", "Call[Any]"], BaseModel | dict[str, Any]]
"""A dictionary is the result in wire form already: for pages that are read in less time than they are validated."""
ApplyFunction = Callable[["Transaction", "Call[Any]"], "Applied"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the operation catalogue (machine protocol §0.3), `position` its place there; or an `INTERNAL` one."""

    name: str
    position: int
    input: type[BaseModel]
    result: type[BaseModel]
    scope: Scope
    needs_context: bool
    horizon: bool = False
    side_effecting: bool = False
    long: bool = False
    """Whether it goes through the whole store: services keep such reads away from all others."""
    short: bool = False
    """Whether it reads some rows by an index and no blob: services need not hand such reads to a thread."""

    @property
    def mutating(self) -> bool:
        return isinstance(self, Mutation)

    @property
    def internal(self) -> bool:
        """Whether only this program's own jobs may ask for it: no door takes it and no catalogue tells it."""
        return self.position == INTERNAL

    @property
    def is_extension(self) -> bool:
        return self.position == EXTENSION


@dataclass(frozen=True, slots=True)
class Read(Operation):
    run: ReadFunction = None  # type: ignore[assignment]  # the decorator always sets it


@dataclass(frozen=True, slots=True)
class Mutation(Operation):
    apply: ApplyFunction = None  # type: ignore[assignment]  # as above
    before_replay: Callable[[View, Call[Any]], None] | None = None
    content: Callable[[Any], ContentInput] | None = None
    """Where the artifact content stands in the input, for operations that carry one."""
    replay_on_snapshot: bool = True
    """Whether an exact replay may be answered from a snapshot, without asking the writer."""
    rewrites: bool = False
    """Whether it may erase and nobody but the writer sees to it that the files are rewritten afterwards."""


_declared: dict[str, Operation] = {}


def _declare(operation: Operation) -> None:
    assert operation.name not in _declared, f"{operation.name} is declared twice"
    _declared[operation.name] = operation


def read(
    name: str,
    *,
    position: int,
    input: type[BaseModel],
    result: type[BaseModel],
    needs_context: bool,
    horizon: bool = False,
    scope: Scope = "recall",
    side_effecting: bool = False,
    long: bool = False,
    short: bool = False,
) -> Callable[[ReadFunction], ReadFunction]:
    """Declare a read; the decorated function computes its result from one snapshot. A `side_effecting` one leaves
    something outside the store, and still no commit."""

    def declare(run: ReadFunction) -> ReadFunction:
        _declare(
            Read(name, position, input, result, scope, needs_context, horizon, side_effecting, long, short, run=run)
        )
        return run

    return declare


def mutation(
    name: str,
    *,
    position: int,
    input: type[BaseModel],
    result: type[BaseModel],
    scope: Scope = "ingest",
    before_replay: Callable[[View, Call[Any]], None] | None = None,
    content: Callable[[Any], ContentInput] | None = None,
    replay_on_snapshot: bool = True,
    rewrites: bool = False,
) -> Callable[[ApplyFunction], ApplyFunction]:
    """Declare a mutation; the decorated function makes the change inside the writer's transaction."""

    def declare(apply: ApplyFunction) -> ApplyFunction:
        _declare(
            Mutation(
                name,
                position,
                input,
                result,
                scope,
                needs_context=True,
                side_effecting=True,
                apply=apply,
                before_replay=before_replay,
                content=content,
                replay_on_snapshot=replay_on_snapshot,
                rewrites=rewrites,
            )
        )
        return apply

    return declare


def operation(name: str) -> Operation | None:
    """The operation of that name. Modules are imported until it is declared, likely ones first: a shell that runs
    one operation should not pay for all of them."""
    if (known := _declared.get(name)) is not None:
        return known
    family = name.split(".", 1)[0]
    for module in sorted(_modules(), key=lambda module: not module.startswith(family)):
        if name in _declared:
            break
        importlib.import_module(f"{memoree.operations.__name__}.{module}")
    return _declared.get(name)


@cache
def catalogue() -> Mapping[str, Operation]:
    """Every operation of the machine protocol, in the order of its catalogue."""
    for module in _modules():
        importlib.import_module(f"{memoree.operations.__name__}.{module}")
    offered = (item for item in _declared.items() if item[1].position > INTERNAL)
    return dict(sorted(offered, key=lambda item: item[1].position))


@cache
def extensions() -> Mapping[str, Operation]:
    """Every other operation that a caller may ask for by name."""
    catalogue()
    return {name: declared for name, declared in sorted(_declared.items()) if declared.is_extension}


@cache
def _modules() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(memoree.operations.__path__)]
