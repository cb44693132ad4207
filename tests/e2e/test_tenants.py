"""What belongs to one tenant is neither shown to another nor changed by one, however warm the caches are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.client import Client, in_parallel, note
from e2e.deployment import SCOPES, STOP_SECONDS_MAX, Deployment, deployment, until
from e2e.shared_stack import fresh_tenant

pytestmark = pytest.mark.stack

ROUNDS = 200
BLOB_BYTES = 40 * 1024
TENANTS = 20
CONTINUED = 4
TENANTS_HELD_MAX = 3


@pytest.mark.fault_class(25)
def test_what_one_tenant_warmed_up_is_not_served_to_the_next(stack: Deployment) -> None:
    with stack.client(fresh_tenant()) as owner, stack.client(fresh_tenant()) as other:
        secret = owner.note("secret " + "s" * BLOB_BYTES, title="a secret")
        other.note("harmless")
        by_id = {"artifact_id": secret["artifact_id"]}
        pending = owner.post("artifact.put", note("more"), headers={"Prefer": "respond-async"}).json()
        operation_url = pending["error"]["details"]["operation_url"]
        until(lambda: owner.http.get(operation_url).json()["state"] == "applied", "the write")
        for _ in range(ROUNDS):
            assert owner.ok("artifact.get", by_id)["title"] == "a secret"
            other.refused("NOT_FOUND", "artifact.get", by_id)
            assert owner.ok("artifact.history", by_id)["revisions"]
            other.refused("NOT_FOUND", "artifact.history", by_id)
            assert owner.ok("search", {"query": "secret"})["hits"]
            assert other.ok("search", {"query": "secret"})["hits"] == []
            assert owner.http.get(operation_url).json()["state"] == "applied"
            assert other.http.get(operation_url).json()["state"] in ("pending", "unknown")


@pytest.mark.fault_class(13)
def test_deleting_everything_of_one_tenant_leaves_the_next_untouched(stack: Deployment) -> None:
    with stack.client(fresh_tenant()) as one, stack.client(fresh_tenant()) as two:
        mine, theirs = ([owner.note(f"row {number}") for number in range(10)] for owner in (one, two))
        for artifact in mine:
            one.ok("artifact.forget", {"artifact_id": artifact["artifact_id"], "reason": "everything goes"})
        assert one.ok("search", {"query": "row"})["hits"] == []
        found = {hit["entity_id"] for hit in two.ok("search", {"query": "row"})["hits"]}
        assert found == {artifact["artifact_id"] for artifact in theirs}


@pytest.mark.fault_class(13)
@pytest.mark.parametrize(
    ("op", "names"),
    [
        ("artifact.forget", ("artifact_id",)),
        ("claim.retract", ("claim_id",)),
        ("source.withdraw", ("source_id", "external_id")),
        ("projection.drop", ("projection_id",)),
    ],
)
def test_nothing_is_deleted_by_an_empty_or_an_inexact_filter(
    stack: Deployment, op: str, names: tuple[str, ...]
) -> None:
    with stack.client(fresh_tenant()) as owner:
        owner.note("stays")
        for filter_ in ({}, *(dict.fromkeys(names, value) for value in ("", " ", None, [], {"$ne": ""}))):
            owner.refused("INVALID_REQUEST", op, {**filter_, "reason": "everything goes"})
        for value in ("*", "%"):
            owner.refused("NOT_FOUND", op, {**dict.fromkeys(names, value), "reason": "everything goes"})
        assert owner.last_commit_seq() == 1


def test_one_key_means_something_else_to_every_tenant(stack: Deployment) -> None:
    with stack.client(fresh_tenant()) as one, stack.client(fresh_tenant()) as two:
        first, second = one.note("of one", key="shared"), two.note("of two", key="shared")
        assert first["artifact_id"] != second["artifact_id"]
        assert (first["created"], second["created"]) == (True, True)
        assert (one.last_commit_seq(), two.last_commit_seq()) == (1, 1)


@pytest.mark.fault_class(29)
def test_a_call_outside_the_scope_of_its_token_is_refused_and_changes_nothing(stack: Deployment) -> None:
    tenant, other_tenant = fresh_tenant(), fresh_tenant()
    with stack.client(tenant) as owner, stack.client(other_tenant) as other:
        artifact = owner.note("stays")
        other.note("stays as well")
        forget = {"artifact_id": artifact["artifact_id"], "reason": "because I say so"}
        with_scopes(stack, {"reader": (tenant, ["recall"]), "writer": (tenant, ["ingest"])})
        with Client(stack.url, "reader") as reader, Client(stack.url, "writer") as writer:
            until(lambda: reader.post("doctor", {}).status_code == 200, "the new tokens")
            until(lambda: writer.post("doctor", {}).status_code == 403, "the new tokens")
            for client, op, payload in (
                (reader, "artifact.put", note("no")),
                (reader, "artifact.forget", forget),
                (writer, "artifact.forget", forget),
                (writer, "artifact.get", {"artifact_id": artifact["artifact_id"]}),
            ):
                answer = client.post(op, payload)
                assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FORBIDDEN"), op
        other.refused("NOT_FOUND", "artifact.forget", forget)
        for body in (wire("doctor", tenant=tenant), wire("artifact.forget", context={"tenant": tenant})):
            assert other.http.post("/v1/call", json=body).status_code == 400, "a tenant is never a field of a request"
        assert (owner.last_commit_seq(), other.last_commit_seq()) == (1, 1)


def wire(op: str, **members: Any) -> dict[str, Any]:
    return {"request_id": "req_scope", "op": op, "input": {}, **members}


def with_scopes(stack: Deployment, further: Mapping[str, tuple[str, list[str]]]) -> None:
    """Add tokens to the file; the api processes see it by themselves."""
    entries = {token: {"tenant": tenant, "scopes": SCOPES} for tenant, token in stack.tokens.items()}
    entries |= {token: {"tenant": tenant, "scopes": scopes} for token, (tenant, scopes) in further.items()}
    stack.replace_tokens_file(json.dumps(entries))


def test_more_tenants_than_the_writer_may_hold_take_turns(tmp_path: Path) -> None:
    """A lease and a Litestream child each: the longest idle is settled for the next one, and goes on later."""
    tenants = [f"turn-{number}" for number in range(TENANTS)]
    with deployment(tmp_path / "stack") as stack:
        stack.use_tokens(tenants)
        stack.start(settings={"MEMOREE_TENANTS_HELD_MAX": str(TENANTS_HELD_MAX)})
        most = 0

        def write(name: str, tenant: str) -> None:
            nonlocal most
            with stack.client(tenant) as client:
                client.decided("artifact.put", note(f"{name} of {tenant}"), key=name)
            most = max(most, len(stack.litestream_pids()))

        in_parallel(TENANTS, lambda number: write("first", tenants[number]))
        for tenant in tenants[:CONTINUED]:
            write("second", tenant)
        for tenant in tenants:
            with stack.client(tenant) as client:
                assert client.last_commit_seq() == 1 + (tenant in tenants[:CONTINUED])
        assert 1 < most <= TENANTS_HELD_MAX
        assert stack.stop() < STOP_SECONDS_MAX
