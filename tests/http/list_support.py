"""Ways to fill a store over HTTP and to read its lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
from http_support import CONTEXT, Caller, Json, envelope, note


def get(caller: Caller, path: str, /, headers: dict[str, str] | None = None, **parameters: Any) -> httpx.Response:
    """One list of the laboratory, or of the context that the parameters name; `None` leaves a parameter out."""
    asked = {name: value for name, value in (CONTEXT | parameters).items() if value is not None}
    return caller.http.get(f"/v1/{path}", params=asked, headers=headers)


def page(caller: Caller, path: str, /, **parameters: Any) -> Json:
    """One page, which must come."""
    response = get(caller, path, **parameters)
    assert response.status_code == 200, response.text
    found: Json = response.json()
    assert set(found) == {"items", "next_cursor", "commit_seq"}
    assert response.headers["memoree-commit-seq"] == str(found["commit_seq"])
    return found


def refused(response: httpx.Response, status: int, code: str) -> str:
    """The message of a refusal."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["code"] == code
    return str(error["message"])


def walk(caller: Caller, path: str, /, **parameters: Any) -> Iterator[Json]:
    """Every page, one after the other."""
    cursor: str | None = None
    while True:
        found = page(caller, path, **parameters, cursor=cursor)
        yield found
        if (cursor := found["next_cursor"]) is None:
            return


def titles(found: Json) -> list[str]:
    return [item["title"] for item in found["items"]]


def statements(found: Json) -> list[str]:
    return [item["statement"] for item in found["items"]]


def ask(caller: Caller, op: str, input: Json, context: Json | None = None) -> Json:
    """The result of an operation that must succeed."""
    request = envelope(op, input, context=context or CONTEXT)
    response = caller.post(request | {"idempotency_key": request["request_id"]})
    assert response.status_code == 200, response.text
    result: Json = response.json()["result"]
    return result


def put(caller: Caller, title: str, *, context: Json | None = None, **fields: Any) -> Json:
    return ask(caller, "artifact.put", note() | {"title": title} | fields, context)


def assert_claim(caller: Caller, statement: str, *, context: Json | None = None, **fields: Any) -> Json:
    return ask(caller, "claim.assert", {"claim_type": "fact", "statement": statement} | fields, context)


def relate(caller: Caller, source: Json, relation: str, target: Json, *, context: Json | None = None) -> Json:
    edge = {"relation": relation}
    for end, entity in (("source", source), ("target", target)):
        kind = "claim" if "claim_id" in entity else "artifact"
        edge |= {f"{end}_type": kind, f"{end}_id": entity[f"{kind}_id"]}
    return ask(caller, "relation.put", edge, context)


def put_many(caller: Caller, count: int, **fields: Any) -> list[str]:
    """The ids of so many new artifacts, stored by one bulk request, in the order of their commits."""
    requests = [envelope("artifact.put", note() | {"title": f"row {n}"} | fields, key=f"row/{n}") for n in range(count)]
    body = b"".join(json.dumps(request).encode() + b"\n" for request in requests)
    response = caller.http.post("/v1/bulk", content=body, headers={"Content-Type": "application/x-ndjson"})
    results = [json.loads(line)["result"] for line in response.text.splitlines()]
    return [each["artifact_id"] for each in sorted(results, key=lambda each: each["commit_seq"])]
