"""A corpus small enough to know by heart, and a service that answers it wrongly on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson

from memoree.client.request import Endpoint, Outgoing

Json = dict[str, Any]
Change = Callable[[Json, Json], None]
"""Of a result, given the input it answers."""

HERE: Json = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
LISTS = ("claims", "artifacts", "acceptable", "negatives", "forbidden", "conflicts", "absent")
LOG = "Firing 12 reached cone 6 at 21:40.\n\nIt was opened after nineteen hours.\n"


def artifact(ref: str, title: str, body: str) -> Json:
    content = {"type": "text", "data": body}
    return seed(ref, "artifact.put", kind="note", title=title, content=content, provenance={})


def claim(ref: str, statement: str, **members: Any) -> Json:
    return seed(ref, "claim.assert", claim_type="fact", statement=statement, **members)


def seed(ref: str, op: str, **input: Any) -> Json:
    return {"ref": ref, "op": op, "context": HERE, "input": input}


def case(id: str, name: str, query: str, presence: str, **members: Any) -> Json:
    lists: Json = {name: [] for name in LISTS}
    known = {"id": id, "class": name, "query": query, "context": HERE, "presence": presence, "why": "it is so"}
    return {**known, "input": {"horizon": "ambient"}, **lists, **members}


SEEDS = [
    artifact("a-log", "Kiln firing 12", LOG),
    claim(
        "c-peak", "Firing 12 reached cone 6 at 21:40.", evidence=[{"artifact": "@a-log", "quote": "cone 6 at 21:40"}]
    ),
    claim("c-open", "Firing 12 was opened after nineteen hours.", evidence=[{"artifact": "@a-log"}]),
    claim("c-old", "Firing 12 reached cone 6 at 20:10."),
    seed("x-1", "claim.retract", claim_id="@c-old", expected_revision_id="@c-old!", reason="misread"),
    claim("c-twice", "Celadon glaze is sieved twice."),
    claim("c-once", "Celadon glaze is sieved once."),
    seed(
        "x-2",
        "relation.put",
        source_type="claim",
        source_id="@c-twice",
        relation="contradicts",
        target_type="claim",
        target_id="@c-once",
    ),
    artifact("a-shift", "Shift book", "On Mondays the extractor fan is oiled by Tamsin."),
    artifact("a-fan", "Fan catalogue", "The extractor fan has five blades. It is oiled never."),
]
CASES = [
    case(
        "peak",
        "lexical",
        "firing 12 reached cone 6",
        "claims",
        claims=["c-peak"],
        acceptable=["a-log"],
        negatives=["c-open"],
        forbidden=["c-old"],
        first="c-peak",
    ),
    case(
        "fan",
        "long_document",
        "extractor fan oiled on Mondays",
        "artifacts_only",
        artifacts=["a-shift"],
        acceptable=["a-fan"],
        negatives=["a-fan"],
        first="a-shift",
        answer="by Tamsin",
    ),
    case(
        "glaze",
        "conflict",
        "celadon glaze sieved",
        "claims",
        claims=["c-twice", "c-once"],
        negatives=["c-peak"],
        conflicts=[["c-twice", "c-once"]],
    ),
    case("tariff", "honest_none", "tariff of the locksmith", "none", negatives=["c-open"], absent=["locksmith"]),
]


def write_corpus(directory: Path, seeds: Iterable[Json] = SEEDS, cases: Iterable[Json] = CASES) -> Path:
    directory.mkdir(exist_ok=True)
    for name, objects in (("seeds", seeds), ("cases", cases)):
        lines = b"".join(orjson.dumps(each, option=orjson.OPT_APPEND_NEWLINE) for each in objects)
        (directory / f"{name}-mini.jsonl").write_bytes(lines)
    return directory


class Altered:
    """An endpoint whose answers to one operation are changed on their way."""

    def __init__(self, endpoint: Endpoint, op: str, change: Change) -> None:
        self._endpoint = endpoint
        self._op = op
        self._change = change

    def exchange(self, request: Outgoing) -> bytes:
        body = self._endpoint.exchange(request)
        if request.op != self._op:
            return body
        envelope = orjson.loads(body)
        self._change(envelope["result"], orjson.loads(request.body)["input"])
        return orjson.dumps(envelope)
