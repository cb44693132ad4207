from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import time_machine

from memoree.objects import (
    ClockSkew,
    ObjectMissing,
    ObjectStoreError,
    PreconditionFailed,
    StoreUnavailable,
)
from memoree.objects.s3 import ATTEMPTS_MAX, S3Settings, S3Store

from .scripted_server import Answer, ScriptedServer, error

pytestmark = pytest.mark.stack

OK = Answer(headers={"ETag": '"etag"', "Last-Modified": "Mon, 30 Nov 2026 12:00:00 GMT"})


@pytest.mark.fault_class(48)
@pytest.mark.proves("operations-6")
@pytest.mark.parametrize("minutes", [16, -16])
def test_a_wrong_clock_is_called_clock_skew(seaweedfs: S3Settings, prefix: str, minutes: int) -> None:
    async def run() -> None:
        async with S3Store(seaweedfs) as store:
            await store.put(f"{prefix}key", b"body")
            with time_machine.travel(datetime.now(UTC) + timedelta(minutes=minutes)):
                for attempt in (
                    store.put(f"{prefix}key", b"other"),
                    store.put(f"{prefix}new", b"other", if_absent=True),
                    store.get(f"{prefix}key"),
                    store.head(f"{prefix}key"),  # whose refusal has no body to name the reason
                ):
                    with pytest.raises(ClockSkew, match="clock skew"):
                        await attempt
            stored = await store.get(f"{prefix}key")
            assert stored is not None
            assert stored.body == b"body"

    asyncio.run(run())


def test_wrong_keys_are_a_refusal_and_not_an_outage(seaweedfs: S3Settings) -> None:
    async def run() -> None:
        wrong = S3Settings(seaweedfs.bucket, seaweedfs.endpoint_url, "us-east-1", "nobody", "secret")
        async with S3Store(wrong) as store:
            with pytest.raises(ObjectStoreError, match="refused with 403") as raised:
                await store.put("key", b"body")
            assert not isinstance(raised.value, StoreUnavailable)

    asyncio.run(run())


def test_a_missing_bucket_is_named_and_not_taken_for_a_missing_object(seaweedfs: S3Settings) -> None:
    async def run() -> None:
        async with S3Store(seaweedfs) as store:
            store._bucket = f"{seaweedfs.bucket}-elsewhere"
            for attempt in (store.get("key"), store.put("key", b"", if_match='"etag"')):
                with pytest.raises(ObjectStoreError) as raised:
                    await attempt
                assert not isinstance(raised.value, ObjectMissing | PreconditionFailed)

    asyncio.run(run())


def test_the_bucket_may_exist_already(seaweedfs: S3Settings) -> None:
    async def run() -> None:
        async with S3Store(seaweedfs) as store:
            await asyncio.gather(*(store.ensure_bucket() for _ in range(3)))

    asyncio.run(run())


def test_a_presigned_delete_deletes_until_it_expires(seaweedfs: S3Settings, prefix: str) -> None:
    async def run() -> None:
        async with S3Store(seaweedfs) as store, httpx.AsyncClient(trust_env=False) as client:
            key = f"{prefix}a key/with ü+&%"
            await store.put(key, b"body")
            with time_machine.travel(datetime.now(UTC) - timedelta(seconds=61)):
                expired = store.presigned_delete(key, expires_seconds=60)
            assert (await client.delete(expired)).status_code == 403
            assert (await store.head(key)).size == 4
            valid = store.presigned_delete(key, expires_seconds=60)
            assert (await client.delete(valid)).is_success
            with pytest.raises(ObjectMissing):
                await store.head(key)
            with pytest.raises(ValueError, match="cannot live"):
                store.presigned_delete(key, expires_seconds=0)

    asyncio.run(run())


def test_many_objects_are_deleted_in_few_requests(seaweedfs: S3Settings, prefix: str) -> None:
    async def run() -> None:
        async with S3Store(seaweedfs) as store:
            keys = [f"{prefix}{number}" for number in range(30)]
            await asyncio.gather(*(store.put(key, b"") for key in keys))
            assert await store.delete_many([*keys, f"{prefix}missing"]) == {}
            assert [info async for info in store.list(prefix)] == []
            assert await store.delete_many([]) == {}

    asyncio.run(run())


@pytest.mark.fault_class(49)
def test_every_key_a_batch_delete_did_not_delete_is_reported() -> None:
    answer = (
        "<DeleteResult><Deleted><Key>a</Key></Deleted>"
        "<Error><Key>b</Key><Code>InternalError</Code><Message>disk</Message></Error></DeleteResult>"
    )

    async def run() -> None:
        async with ScriptedServer([Answer(body=answer.encode())]) as server, S3Store(server.settings) as store:
            failures = await store.delete_many(["a", "b", "c"])
            assert set(failures) == {"b", "c"}
            assert failures["b"] == "InternalError: disk"
            assert "did not answer" in failures["c"]

    asyncio.run(run())


@pytest.mark.parametrize("condition", [{"if_match": '"etag"'}, {"if_absent": True}])
@pytest.mark.parametrize("fault", [error(500, "InternalError"), error(503, "SlowDown"), Answer(status=502)])
def test_a_conditional_write_is_sent_once_and_its_outcome_left_open(
    fault: Answer, condition: dict[str, object]
) -> None:
    async def run() -> None:
        async with ScriptedServer([fault, OK]) as server, S3Store(server.settings) as store:
            with pytest.raises(StoreUnavailable):
                await store.put("key", b"body", **condition)  # type: ignore[arg-type]  # either of the two
            assert server.requests == ["PUT /bucket/key"]

    asyncio.run(run())


def test_a_body_does_not_wait_for_permission_to_be_sent() -> None:
    async def run() -> None:
        async with ScriptedServer([OK]) as server, S3Store(server.settings) as store:
            await store.put("key", b"body")
            await store.put("new", b"body", if_absent=True)
            assert not [head for head in server.heads if "expect:" in head.lower()]
            assert len(server.heads) == 2

    asyncio.run(run())


def test_what_may_be_repeated_is_repeated_within_bounds() -> None:
    async def run() -> None:
        async with ScriptedServer([error(503, "SlowDown"), OK]) as server, S3Store(server.settings) as store:
            assert await store.put("key", b"body") == '"etag"'
            assert len(server.requests) == 2
        async with ScriptedServer([error(503, "SlowDown")]) as server, S3Store(server.settings) as store:
            with pytest.raises(StoreUnavailable, match="503 SlowDown"):
                await store.get("key")
            assert len(server.requests) == ATTEMPTS_MAX

    asyncio.run(run())


@pytest.mark.fault_class(46)
@pytest.mark.parametrize(
    "answer",
    [error(404, "NoSuchKey"), error(409, "ConditionalRequestConflict"), error(412, "PreconditionFailed")],
)
def test_each_store_spells_a_failed_precondition_differently(answer: Answer) -> None:
    async def run() -> None:
        async with ScriptedServer([answer]) as server, S3Store(server.settings) as store:
            with pytest.raises(PreconditionFailed):
                await store.put("key", b"body", if_match='"etag"')

    asyncio.run(run())


def test_a_store_that_does_not_answer_in_time_leaves_the_outcome_open() -> None:
    async def run() -> None:
        async with ScriptedServer([Answer(hang=True)]) as server, S3Store(server.settings) as store:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await store.put("key", b"body", if_match='"etag"', timeout_seconds=0.2)
            assert time.monotonic() - began < 2
            assert server.requests == ["PUT /bucket/key"]

    asyncio.run(run())


def test_half_a_body_is_no_body() -> None:
    async def run() -> None:
        half = Answer(body=b"half", headers=OK.headers, cut=True)
        async with ScriptedServer([half]) as server, S3Store(server.settings) as store:
            with pytest.raises(StoreUnavailable):
                await store.get("key")

    asyncio.run(run())


def test_nobody_listening_is_an_outage() -> None:
    async def run() -> None:
        async with ScriptedServer([OK]) as server:
            settings = server.settings
        async with S3Store(settings) as store:
            with pytest.raises(StoreUnavailable, match="no answer"):
                await store.put("key", b"body", if_absent=True)

    asyncio.run(run())


def test_a_page_where_xml_was_due_is_an_outage() -> None:
    async def run() -> None:
        page = Answer(body=b"<html><p>captive portal", headers={"Content-Type": "text/html"})
        async with ScriptedServer([page]) as server, S3Store(server.settings) as store:
            with pytest.raises(StoreUnavailable):
                _ = [info async for info in store.list("tenants/local/ltx/")]

    asyncio.run(run())


def test_a_proxy_from_the_environment_is_not_asked_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    async def run() -> None:
        async with ScriptedServer([OK]) as server, S3Store(server.settings) as store:
            assert await store.put("key", b"body", if_absent=True) == '"etag"'

    asyncio.run(run())


def test_secrets_stay_out_of_the_settings_text() -> None:
    assert "hunter2" not in repr(S3Settings("bucket", access_key_id="key", secret_access_key="hunter2"))
