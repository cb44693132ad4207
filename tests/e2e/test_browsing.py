"""Lists and bulk requests on a running stack: several api processes, one walk; many lines, few group commits."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from e2e.deployment import Deployment

pytestmark = pytest.mark.stack

Json = dict[str, Any]

CONTEXT = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
STRONG = {"Memoree-Consistency": "strong"}
LINES = 600
CONNECTIONS = 12


def bulk(stack: Deployment, tenant: str, requests: list[Json]) -> list[Json]:
    body = b"".join(json.dumps(request).encode() + b"\n" for request in requests)
    headers = authorization(stack, tenant) | {"Content-Type": "application/x-ndjson"}
    response = httpx.post(f"{stack.url}/v1/bulk", content=body, headers=headers, timeout=60)
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def page(stack: Deployment, tenant: str, **parameters: Any) -> Json:
    """A page over a connection of its own, so that any of the api processes may answer."""
    response = httpx.get(
        f"{stack.url}/v1/claims",
        params=CONTEXT | parameters,
        headers=authorization(stack, tenant) | STRONG,
        timeout=60,
    )
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def authorization(stack: Deployment, tenant: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {stack.tokens[tenant]}"}


def claims(count: int) -> list[Json]:
    return [
        {
            "request_id": f"req_{number}",
            "op": "claim.assert",
            "idempotency_key": f"row/{number}",
            "context": CONTEXT,
            "input": {"claim_type": "fact", "statement": f"row {number}"},
        }
        for number in range(count)
    ]


def test_a_bulk_request_is_answered_line_for_line_and_a_read_sees_the_lines_before_it(
    stack: Deployment, tenant: str
) -> None:
    look = {"request_id": "look", "op": "doctor", "input": {}}
    *found, seen = bulk(stack, tenant, [*claims(LINES), look])
    assert [answer["request_id"] for answer in found] == [f"req_{number}" for number in range(LINES)]
    assert sorted(answer["commit_seq"] for answer in found) == list(range(1, LINES + 1))
    assert seen["result"]["last_commit_seq"] == LINES
    again = bulk(stack, tenant, claims(LINES))
    assert [answer["result"]["claim_id"] for answer in again] == [answer["result"]["claim_id"] for answer in found]
    assert not any(answer["result"]["created"] for answer in again)


@pytest.mark.proves("fault-53")
def test_any_api_process_continues_a_walk_that_another_began(stack: Deployment, tenant: str) -> None:
    bulk(stack, tenant, claims(60))
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        firsts = list(pool.map(lambda _: page(stack, tenant, limit=20), range(CONNECTIONS)))
        cursors = {first["next_cursor"] for first in firsts}
        assert len(cursors) == 1, "the processes do not seal alike"
        rests = list(
            pool.map(lambda _: page(stack, tenant, limit=1000, cursor=cursors.copy().pop()), range(CONNECTIONS))
        )
    seen = [item["claim_id"] for found in (firsts[0], rests[0]) for item in found["items"]]
    assert len(set(seen)) == len(seen) == 60
    assert all(rest == rests[0] for rest in rests)
