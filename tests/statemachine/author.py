"""Writes the requests of a program: a twist says which of the model's rules a request is meant to meet.

A twist is an intention. What becomes of the request is the model's to say: nothing here decides an outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from contract.door import Json
from contract.fields import INPUTS

from .artifact_inputs import ArtifactInputs
from .choices import Written
from .claim_inputs import ClaimInputs
from .entities import Context
from .intentions import ROWS
from .model import Model
from .source_inputs import SourceInputs

CHANGES: Final[dict[str, Json]] = {
    "actor": {"actor": "agent/wheel"},
    "reason": {"reason": "another one"},
    "metadata": {"metadata": {"by": "agent/wheel"}},
}
"""Of these members every mutation has one."""


class Author(ArtifactInputs, ClaimInputs, SourceInputs):
    """Makes requests of intentions, over what the model holds."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._sent: list[Json] = []

    def request(self, op: str, twist: str, seed: int) -> Json | None:
        """A request of that intention, or None when the model holds nothing fit for it. The same model, earlier
        requests and seed give the same request."""
        self.pick = Random(seed)
        if twist in ("replay", "changed replay"):
            return self._again(op, changed=twist == "changed replay")
        written = self._written(op, twist)
        if written is None:
            return None
        input, context = written
        request: Json = {"v": 1, "request_id": self._fresh("req"), "op": op, "input": input}
        row = ROWS[op]
        if row.needs_context and twist != "homeless":
            request["context"] = _sent(context, self._pins(op))
        if row.mutating:
            request["idempotency_key"] = self._key(request, twist)
        if twist == "malformed":
            self._spoil(request["input"], op)
        return request

    def remember(self, request: Json) -> None:
        """A mutation that succeeded, for later replays."""
        self._sent.append(request)

    def _again(self, op: str, *, changed: bool) -> Json | None:
        """An earlier request under a new id, or under its old key with something else in it."""
        earlier = self._some([request for request in self._sent if request["op"] == op])
        if earlier is None:
            return None
        again = earlier | {"request_id": self._fresh("req")}
        if not changed:
            return again
        if self.pick.random() < 0.5:
            change = next(change for name, change in CHANGES.items() if name in INPUTS[op])
            return again | {"input": earlier["input"] | change}
        return again | {"context": earlier["context"] | self._one([{"pins": ["art_0"]}, {"component": "kiln"}])}

    def _key(self, request: Json, twist: str) -> str:
        if twist == "reused key" and "context" in request:
            context = Context.of(request["context"])
            here = (context.workspace, context.project, context.task or "")
            used = [key for *namespace, key in self.model.recorded if tuple(namespace) == here]
            if used:
                return self._one(used)
        return self._fresh("key")

    def _written(self, op: str, twist: str) -> Written:
        write: Callable[[str], Written] = getattr(self, "_" + op.replace(".", "_"))
        return write(twist)

    def _pins(self, op: str) -> tuple[str, ...]:
        if op not in ("search", "relation.list") or not self.model.artifacts or self.pick.random() < 0.5:
            return ()
        artifact = self._one(list(self.model.artifacts.values()))
        spelling = self._one(("{a}", "{a}@{r}", "memoree://artifact/{a}", "memoree://artifact/{a}@{r}", "{a}@"))
        return (spelling.format(a=artifact.id, r=self._one(artifact.revisions).id),)

    def _spoil(self, input: Json, op: str) -> None:
        """One fault that a look at the input alone can see."""
        required = [name for name, member in INPUTS[op].items() if member.when == "required"]
        name = self._one([*required, "surplus"])
        if name == "surplus" or self.pick.random() < 0.3:
            input["surplus"] = 1
        elif self.pick.random() < 0.5:
            del input[name]
        else:
            input[name] = self._one([7.5, None, [[]]])


def _sent(context: Context, pins: tuple[str, ...]) -> Json:
    sent = context.to_wire(pins)
    return sent if pins else {name: value for name, value in sent.items() if name != "pins"}
