"""Storing the seeds, and what their refs stand for from then on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from memoree.errors import invalid, shown
from memoree.evaluation.asking import Asker
from memoree.evaluation.corpus import CREATES, REFERENCE, EntityType, Seed

KEY_DIGITS = 16
SEEN = "expected_revision_id"
"""The revision that a change was written for. Operations that do not ask for it do not get it."""


@dataclass(frozen=True, slots=True)
class Entity:
    """What a ref stands for: its id, its newest revision, and the text of an artifact's newest revision."""

    entity_type: EntityType
    entity_id: str
    revision_id: str
    body: bytes = b""


class Stored:
    """The entities of a corpus in one store, by ref; their refs, by id."""

    def __init__(self) -> None:
        self.entities: dict[str, Entity] = {}
        self._refs: dict[str, str] = {}

    def __setitem__(self, ref: str, entity: Entity) -> None:
        self.entities[ref] = entity
        self._refs[entity.entity_id] = ref

    def ref(self, entity_id: str) -> str:
        """The ref of an entity; the id itself for one that the corpus did not store."""
        return self._refs.get(entity_id, entity_id)

    def id(self, ref: str) -> str:
        return self.entities[ref].entity_id


def store_seeds(asker: Asker, seeds: Sequence[Seed]) -> Stored:
    """Write the seeds one by one, in order. Their idempotency keys are those of the corpus: a store that has it already
    is left as it is. Raises what a write is refused with, and `INVALID_REQUEST` for a quote that is not exactly once in
    its artifact."""
    stored = Stored()
    key = blake3("\n".join(seed.model_dump_json() for seed in seeds).encode()).hexdigest()[:KEY_DIGITS]
    for seed in seeds:
        input = _resolved(seed, stored)
        record = asker.result(seed.op, input, seed.context, key=f"evaluation:{key}:{seed.ref}")
        _note(seed, record, stored)
    return stored


def _note(seed: Seed, record: Mapping[str, Any], stored: Stored) -> None:
    """Keep what a write made or revised."""
    family = seed.op.partition(".")[0]
    if family == "relation":
        return
    entity_id = record[f"{family}_id"]
    ref = seed.ref if seed.op in CREATES else stored.ref(entity_id)
    body = seed.input["content"]["data"].encode() if "content" in seed.input else b""
    stored[ref] = Entity("artifact" if family == "artifact" else "claim", entity_id, record["revision_id"], body)


def _resolved(seed: Seed, stored: Stored) -> dict[str, Any]:
    """The input as the operation takes it."""
    input = {name: _id_of(value, stored) if name.endswith("_id") else value for name, value in seed.input.items()}
    seen = input.pop(SEEN, None)
    if seed.op.endswith(".revise"):
        input["if_revision"] = seen
    if "evidence" in input:
        input["evidence"] = [_locator(seed, item, stored) for item in input["evidence"]]
    return input


def _id_of(value: Any, stored: Stored) -> Any:
    found = REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    entity = stored.entities[found[1]]
    return entity.revision_id if found[2] else entity.entity_id


def _locator(seed: Seed, item: Mapping[str, str], stored: Stored) -> dict[str, Any]:
    """The bytes of a quote; the whole revision where nothing is quoted."""
    source = stored.entities[item["artifact"].removeprefix("@")]
    locator = {"artifact_id": source.entity_id, "revision_id": source.revision_id}
    if "quote" not in item:
        return locator
    quote = item["quote"].encode()
    if source.body.count(quote) != 1:
        invalid(f"{seed.ref}: {shown(item['quote'])} is not exactly once in {item['artifact']}")
    start = source.body.index(quote)
    return {**locator, "start_byte": start, "end_byte": start + len(quote)}
