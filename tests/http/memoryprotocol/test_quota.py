"""A tenant that holds all it may, as MemoryProtocol tells it."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from http_support import serving

from memoree.embedded import LOCAL_TENANT, EmbeddedService
from memoree.http.app import create_app
from memoree.http.settings import HttpSettings

from .protocol import Protocol

EPISODES = ("01KJR4GZXJDFPSG3SB9V65FA1E", "01KJR4GZXJDFPSG3SB9V65FA1F")


@pytest.mark.proves("operations-78")
def test_an_episode_that_does_not_fit_is_413_and_says_which_limit(store: EmbeddedService, stack: ExitStack) -> None:
    client = Protocol(stack.enter_context(serving(create_app(store, HttpSettings()))), None)
    stack.callback(client.close)
    asyncio.run(store.administration.set_quota(LOCAL_TENANT, {"bytes_max": 30}))
    body = {"content": "the damper sticks", "source": "standup:1"}
    fits, full = (client.http.post("/v1/ingest", json={**body, "id": each}) for each in EPISODES)
    assert fits.status_code == 200, fits.text
    told = full.json()
    assert (full.status_code, told.get("error")) == (413, "quota_exceeded")
    assert {name: told.get(name) for name in ("limit", "used", "quota")} == {"limit": "bytes", "used": 17, "quota": 30}
    forgotten = client.http.post("/v1/forget", json={"target": {"Id": EPISODES[0]}})
    assert forgotten.status_code == 200, forgotten.text
