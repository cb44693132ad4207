"""Names, bytes, positions and messages of one tenant among those of others."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from isolation.caller import Caller, told_by
from isolation.conftest import ODD, Town, token_of_odd
from isolation.names import ALIKE, token_of
from isolation.site import is_of
from isolation.things import LARGE_BYTES, declared, filled, listed, put_of, uploaded
from isolation.walk import overview
from memoree.ids import new_ulid
from memoree.ingest.message import Ingest, IngestMessage, InlineContent, MessageContext, Register, SourceReference

ROUTES = (
    ("POST", "/v1/call"),
    ("POST", "/v1/bulk"),
    ("GET", f"/v1/operations/att_{new_ulid()}"),
    ("POST", "/v1/artifacts/uploads"),
    ("GET", "/v1/artifacts"),
    ("GET", "/v1/episode/01KJR4GZXJDFPSG3SB9V65FA1E"),
    ("POST", "/v1/ingest"),
    ("GET", "/v1/snapshot/0.0"),
)


@pytest.mark.proves("isolation-5")
@pytest.mark.fault_class(26)
@pytest.mark.parametrize("name", ODD, ids=[ascii(each)[:20] for each in ODD])
def test_a_name_that_could_be_taken_for_another_opens_nothing(shared_town: Town, name: str) -> None:
    url, ledger = shared_town.callers.base_url, shared_town.callers.ledger
    caller, stranger = (Caller(url, "a", ledger, token=token) for token in (token_of_odd(name), "tok-of-nobody"))
    try:
        for method, path in ROUTES:
            answer, expected = (
                each.request(method, path, {} if method == "POST" else None) for each in (caller, stranger)
            )
            assert (answer.status_code, answer.text) == (401, expected.text)
    finally:
        caller.close()
        stranger.close()
    tenants = {path.name for path in (shared_town.site.directory / "bucket" / "tenants").glob("*")}
    assert tenants <= set(ALIKE)


@pytest.mark.proves("isolation-3")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "tenants/{tenant}", None),
        ("DELETE", "tenants/{tenant}", None),
        ("DELETE", "tenants/{tenant}?confirmation=abc", None),
        ("PUT", "tenants/{tenant}/quota", {"rows": 1}),
        ("DELETE", "tokens/{token_id}", None),
        ("POST", "tokens", {"tenant": "{tenant}", "scopes": ["recall"]}),
    ],
)
def test_who_administers_one_tenant_learns_nothing_of_the_next(
    shared_town: Town, method: str, path: str, body: Any
) -> None:
    other = shared_town.callers.by_tenant["A"]
    token_ids = (hashlib.sha256(token_of("a").encode()).hexdigest()[:12], "0123456789ab")
    told = []
    for tenant, token_id in zip(("a", "b"), token_ids, strict=True):
        shared_town.site.watch.take()
        names = {"tenant": tenant, "token_id": token_id}
        answer = other.request(method, f"/v1/admin/{path.format_map(names)}", filled(body, names))
        touches, statements = shared_town.site.watch.take()
        text = answer.text.replace(f"'{tenant}'", "*").replace(token_id, "*")
        told.append((answer.status_code, text, {touch.method for touch in touches}, statements))
    assert told[0] == told[1]
    assert told[0][0] in (403, 404)


@pytest.mark.proves("isolation-6")
def test_bytes_that_another_tenant_sent_have_to_be_sent_again(shared_town: Town) -> None:
    """Who only knows a digest learns nothing from it, and gets nothing for it."""
    one, two = (shared_town.callers.by_tenant[name] for name in ("a", "A"))
    body, unknown = b"\xfe" * LARGE_BYTES, b"\xfd" * LARGE_BYTES
    naming = {"kind": "file", "title": "t"}
    content = {"type": "upload", "upload_id": uploaded(one, body)}
    one_stored = one.ok("artifact.put", naming | {"content": content}, key="same")

    told = []
    for each in (body, unknown):
        shared_town.site.watch.take()
        upload_id = declared(two, each)
        answer = two.call("artifact.put", naming | {"content": {"type": "upload", "upload_id": upload_id}}, key="same")
        touches, _ = shared_town.site.watch.take()
        told.append(
            (
                str(answer["error"]).replace(upload_id, "*"),
                {touch.method for touch in touches},
                {touch.key for touch in touches if not is_of("A", touch.key)},
            )
        )
    assert told[0] == told[1]
    assert "not_sent" in told[0][0] and not told[0][2]

    stored = two.ok("artifact.put", put_of(body), key="same")
    assert stored["created"]
    prefixes = {path.parts[-5] for path in (shared_town.site.directory / "bucket").rglob(f"*/{stored['blob_hash']}")}
    assert prefixes == {"a", "A"}, "each has its own copy"
    whole = {"artifact_id": one_stored["artifact_id"]}, {"artifact_id": stored["artifact_id"]}
    for caller, asked in zip((one, two), whole, strict=True):
        shared_town.site.watch.take()
        assert caller.ok("artifact.get", asked)["blob_hash"] == stored["blob_hash"]
        touches, _ = shared_town.site.watch.take()
        assert stored["blob_hash"] in "".join(touch.key for touch in touches), "who read it first is nobody's business"


@pytest.mark.proves("isolation-2")
def test_a_position_of_another_tenant_is_a_position_in_ones_own_past(shared_town: Town) -> None:
    early, late = (shared_town.callers.by_tenant[name] for name in ("a_", "a-"))
    mine = {"source": "kiln:log", "content": early.text("episode")}
    early.request("POST", "/v1/ingest", mine)
    theirs = late.request("POST", "/v1/ingest", mine | {"content": late.text("episode")}).json()["lsn"]
    told = early.request("GET", f"/v1/snapshot/{theirs['wall_ms']}.{theirs['counter']}")
    assert told.status_code == 200
    assert early.word in told.text and late.word not in told.text


@pytest.mark.proves("isolation-2")
@pytest.mark.fault_class(53)
def test_a_cursor_of_another_tenant_is_worth_as_much_as_an_invented_one(shared_town: Town) -> None:
    """The same list, with the same filters, in the same context."""
    one, two = (shared_town.callers.by_tenant[name] for name in ("a.b", "a1"))
    for caller in (one, two):
        for _ in range(2):
            caller.ok("artifact.put", put_of(caller.text()))
    cursor = one.request("GET", listed("artifacts", limit=1)).json()["next_cursor"]
    altered = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")
    answers = [two.request("GET", listed("artifacts", limit=1, cursor=each)) for each in (cursor, altered)]
    assert [answer.status_code for answer in answers] == [400, 400]
    assert list(told_by(answers[0])) == list(told_by(answers[1]))


@pytest.mark.proves("isolation-7")
@pytest.mark.fault_class(26)
def test_messages_reach_the_tenant_that_they_name(town: Town) -> None:
    """All at once: every tenant has a source, in a context, with an item of the same name."""
    callers = town.callers.by_tenant.values()
    messages: list[IngestMessage] = []
    for caller in callers:
        common = {
            "tenant": caller.tenant,
            "source": SourceReference(system="wiki", name="Studio wiki"),
            "context": MessageContext(workspace_id="wsp_lab", project_id="prj_kiln"),
        }
        item = {"external_id": "page-1", "external_revision": "v1", "kind": "page", "title": "Glazes"}
        text = InlineContent.of(caller.text("page").encode())
        messages += [Register(**common), Ingest(**common, **item, content=text, observed_at="2026-03-02T20:41:00Z")]
    assert town.site.publish is not None and town.site.loop is not None
    asyncio.run_coroutine_threadsafe(town.site.publish(messages), town.site.loop).result(60)
    for caller in callers:
        assert len(overview(caller)["artifacts"]) == 1
        assert len(caller.ok("search", {"query": caller.word})["hits"]) == 1
