"""The api as a function whose tokens are an object of the bucket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from functions_support import SCOPES, TOKEN, Json, Remaining, Site, headers_of, json_of, url_event
from orjson import dumps

from memoree.errors import MemoreeError
from memoree.objects.s3 import S3Store
from memoree.serverless.api import ApiFunction
from memoree.tokens.s3 import POLL_SECONDS
from stack_support import unique_prefix

pytestmark = pytest.mark.stack

TOKENS_PATH = "/v1/admin/tokens"


@pytest.fixture
def key() -> str:
    return f"{unique_prefix()}keys/tokens.json"


@pytest.fixture
def api(site: Site, key: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiFunction]:
    monkeypatch.setenv("MEMOREE_TOKENS_FILE", f"s3://{site.s3.bucket}/{key}")
    function = ApiFunction()
    yield function
    function.container.close()


def store_tokens(site: Site, key: str, *tokens: str) -> None:
    async def put() -> None:
        async with S3Store(site.s3) as store:
            await store.put(key, dumps({token: {"tenant": site.tenant, "scopes": SCOPES} for token in tokens}))

    asyncio.run(put())


def ask(api: ApiFunction, method: str, path: str, body: bytes = b"", token: str = TOKEN) -> Json:
    event = url_event(method, path, body, headers={"authorization": f"Bearer {token}"})
    return api(event, Remaining())


@pytest.mark.proves("tokens-5")
def test_the_first_request_after_a_pause_knows_what_was_withdrawn_meanwhile(
    api: ApiFunction, site: Site, key: str
) -> None:
    store_tokens(site, key, TOKEN)
    assert ask(api, "GET", TOKENS_PATH)["statusCode"] == 200
    store_tokens(site, key, "another")
    time.sleep(POLL_SECONDS)  # nothing runs between two events, so there is nothing to wait for
    assert ask(api, "GET", TOKENS_PATH)["statusCode"] == 401
    assert ask(api, "GET", TOKENS_PATH, token="another")["statusCode"] == 200


def test_a_function_makes_tokens_in_the_object(api: ApiFunction, site: Site, key: str) -> None:
    store_tokens(site, key, TOKEN)
    made = ask(api, "POST", TOKENS_PATH, dumps({"scopes": ["admin"]}))
    assert made["statusCode"] == 201, made
    assert headers_of(made)["cache-control"] == "no-store"
    assert ask(api, "GET", TOKENS_PATH, token=json_of(made)["token"])["statusCode"] == 200


@pytest.mark.proves("tokens-3")
def test_without_the_object_every_door_is_closed(api: ApiFunction) -> None:
    assert ask(api, "GET", TOKENS_PATH)["statusCode"] == 401


@pytest.mark.proves("tokens-4")
def test_a_store_that_never_answered_closes_no_door_by_a_401(api: ApiFunction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMOREE_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(MemoreeError, match="the tokens file"):
        ask(api, "GET", TOKENS_PATH)
