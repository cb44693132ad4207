"""Tokens that are kept elsewhere: seen when they change, and for a bounded time when nobody answers."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from memoree.http.app import create_app
from memoree.http.auth import Tokens
from memoree.http.server import HttpServer, address_of, listen
from memoree.http.settings import HttpSettings
from memoree.objects import ObjectMissing, ObjectStore, ObjectStoreError, StoredObject, StoreUnavailable
from memoree.objects.filesystem import FilesystemStore
from memoree.tokens import remote, s3
from memoree.tokens.places import TokensObject
from memoree.tokens.remote import Fetched, RemoteSource
from memoree.tokens.source import Change, FixedSource

KEY = "keys/tokens.json"
SECRET = "tok-very-secret"
DOCUMENT = {SECRET: {"tenant": "A", "scopes": ["admin"]}}
STALE_SECONDS_MAX = 300.0


class Scripted(RemoteSource):
    """A service in this process, and clocks to turn."""

    every_seconds = 10.0
    stale_seconds_max = STALE_SECONDS_MAX

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_000_000.0, 5.0
        super().__init__(wall=lambda: self.wall, monotonic=lambda: self.monotonic)
        self.answer: bytes | Exception = json.dumps(DOCUMENT).encode()
        self.asked: list[str | None] = []

    async def fetch(self, version: str | None) -> Fetched | None:
        self.asked.append(version)
        if isinstance(self.answer, Exception):
            raise self.answer
        found = Fetched(str(hash(self.answer)), self.answer)
        return None if found.version == version else found

    async def read(self) -> dict[str, object]:
        return {}

    async def update(self, change: Change) -> None: ...


class Followed:
    """Tokens over a scripted service."""

    def __init__(self) -> None:
        self.service = Scripted()
        self.tokens = Tokens(Path("unused"), monotonic=lambda: self.service.monotonic)
        self.tokens.source = self.service
        self.after(0)

    def after(self, seconds: float, *, wall: float | None = None, if_due: bool = False) -> bool:
        """Ask again so much later; whether the token opens its door."""
        self.service.monotonic += seconds
        self.service.wall += seconds if wall is None else wall
        asyncio.run(self.tokens.refresh(if_due=if_due))
        return self.opens

    @property
    def opens(self) -> bool:
        return self.tokens.names("A")


@pytest.fixture
def followed() -> Followed:
    return Followed()


@pytest.mark.proves("tokens-2")
def test_what_did_not_change_is_not_sent_again_and_what_changed_counts(followed: Followed) -> None:
    assert followed.opens
    assert followed.after(10)
    assert followed.service.asked[0] is None
    assert followed.service.asked[1] is not None
    followed.service.answer = b'{"other": {"tenant": "B", "scopes": []}}'
    assert not followed.after(10)
    assert followed.tokens.names("B")


@pytest.mark.proves("tokens-3")
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ObjectMissing("no such object"), "there is none"),
        (ObjectStoreError("403"), "refused"),
        (b"{", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b" " * (4 * 1024 * 1024 + 1), "more than"),
    ],
    ids=["missing", "refused", "broken", "list", "huge"],
)
def test_an_answer_without_a_tokens_file_closes_at_once_and_says_so(
    followed: Followed, caplog: pytest.LogCaptureFixture, answer: bytes | Exception, told: str
) -> None:
    sound = followed.service.answer
    followed.service.answer = answer
    assert not followed.after(10)
    check = followed.tokens.check()
    assert (check.ok, told in check.detail) == (False, True)
    assert "opens no door" in caplog.text
    followed.service.answer = sound
    assert followed.after(10)
    assert followed.tokens.check().ok


@pytest.mark.proves("tokens-4")
@pytest.mark.parametrize("clock", ["both", "monotonic", "wall"])
@pytest.mark.parametrize("failure", [StoreUnavailable("no answer"), TimeoutError(), RuntimeError("a bug")])
def test_without_an_answer_the_last_tokens_count_for_five_minutes(
    followed: Followed, caplog: pytest.LogCaptureFixture, clock: str, failure: Exception
) -> None:
    """A frozen host's monotonic clock stands still; a wall clock is set back."""
    followed.service.answer = failure
    forward = {"both": (299, 299, 1.5, 1.5), "monotonic": (299, -1e6, 1.5, 0), "wall": (0, 299, 0, 1.5)}[clock]
    assert followed.after(forward[0], wall=forward[1])
    followed.service.wall += forward[3]
    followed.service.monotonic += max(forward[2], 1)
    assert not followed.opens
    assert not followed.tokens.check().ok
    assert "opens no door" in caplog.text


@pytest.mark.proves("tokens-4")
def test_the_same_tokens_after_an_outage_open_their_doors_again(followed: Followed) -> None:
    sound, followed.service.answer = followed.service.answer, StoreUnavailable("no answer")
    assert not followed.after(STALE_SECONDS_MAX + 1)
    followed.service.answer = sound
    assert followed.after(1)


def test_no_document_is_kept_once_it_was_looked_at(followed: Followed) -> None:
    followed.after(10)
    assert SECRET not in repr(vars(followed.service) | {"answer": None}) + repr(vars(followed.tokens))


def test_an_outage_is_logged_once_and_not_at_every_look(followed: Followed, caplog: pytest.LogCaptureFixture) -> None:
    followed.service.answer = StoreUnavailable("no answer")
    for _ in range(5):
        followed.after(2)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


@pytest.mark.proves("tokens-5")
def test_a_look_that_is_not_due_is_not_taken(followed: Followed) -> None:
    asked = len(followed.service.asked)
    followed.after(9, if_due=True)
    assert len(followed.service.asked) == asked
    followed.after(1, if_due=True)
    assert len(followed.service.asked) == asked + 1
    followed.after(0, wall=10, if_due=True)
    assert len(followed.service.asked) == asked + 2, "the host was frozen"


@pytest.mark.proves("tokens-5")
def test_who_asks_is_not_kept_longer_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "ANSWER_SECONDS_MAX", 0.1)

    class Silent(Scripted):
        async def fetch(self, version: str | None) -> Fetched | None:
            await asyncio.sleep(60)
            return None

    source = Silent()
    began = time.monotonic()
    asyncio.run(source.refresh())
    assert time.monotonic() - began < 5
    assert not source.answered


def test_before_the_first_answer_a_function_does_not_open() -> None:
    followed = Followed()
    followed.tokens.require_an_answer()
    followed.tokens.source = Scripted()
    with pytest.raises(Exception, match="the tokens file"):
        followed.tokens.require_an_answer()


class Counting(FilesystemStore):
    """Counts its reads, and does not answer them while `silent`."""

    reads = 0
    unchanged = 0
    silent = False

    async def get(self, key: str, *, if_none_match: str | None = None) -> StoredObject | None:
        self.reads += 1
        if self.silent:
            raise StoreUnavailable(f"no answer about {SECRET}")
        found = await super().get(key, if_none_match=if_none_match)
        self.unchanged += found is None
        return found


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    kept = Counting(tmp_path / "objects")

    @asynccontextmanager
    async def opened(bucket: str, access: object) -> AsyncIterator[ObjectStore]:
        yield kept

    monkeypatch.setattr(s3, "_opened_bucket", opened)
    monkeypatch.setattr(s3.ObjectSource, "every_seconds", 0.05)
    return kept


@asynccontextmanager
async def no_service() -> AsyncIterator[None]:
    yield


class Server:
    """The application over tokens in an object; administration needs nothing else."""

    def __init__(self) -> None:
        self._listener = listen("127.0.0.1", 0)
        app: Starlette = create_app(no_service, HttpSettings(tokens_file=TokensObject("bucket", KEY)))  # type: ignore[arg-type]
        self._server = HttpServer(app, self._listener)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        until(lambda: self._server.started)

    def status(self, token: str = SECRET) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"http://{address_of(self._listener)}/v1/admin/tokens", headers=headers).status_code

    def readiness(self) -> dict[str, object]:
        found: dict[str, object] = httpx.get(f"http://{address_of(self._listener)}/readyz").json()["checks"]["tokens"]
        return found

    def stop(self) -> None:
        self._server.stop()
        self._thread.join(20)
        assert not self._thread.is_alive()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.proves("tokens-2", "tokens-3")
def test_a_server_follows_the_object_in_the_background(store: Counting) -> None:
    store.put_sync(KEY, json.dumps(DOCUMENT).encode())
    server = Server()
    try:
        assert server.status() == 200
        until(lambda: store.unchanged >= 3)  # without a request
        store.put_sync(KEY, b'{"another": {"tenant": "A", "scopes": ["admin"]}}')
        until(lambda: server.status() == 401)
        assert server.status("another") == 200
        store.delete_sync(KEY)
        until(lambda: server.status("another") == 401)
        assert server.readiness()["ok"] is False
    finally:
        server.stop()


@pytest.mark.proves("tokens-2", "tokens-4")
def test_a_silent_store_keeps_nobody_waiting_and_is_not_told_to_everybody(store: Counting) -> None:
    store.put_sync(KEY, json.dumps(DOCUMENT).encode())
    server = Server()
    try:
        store.silent = True
        reads = store.reads
        until(lambda: store.reads > reads + 1)
        assert server.readiness()["ok"] is True
        store.delete_sync(KEY)
        store.silent = False
        until(lambda: server.readiness()["ok"] is False)
        assert SECRET not in str(server.readiness())
    finally:
        server.stop()


def test_a_start_without_the_object_waits_for_it_with_closed_doors(store: Counting) -> None:
    server = Server()
    try:
        assert server.status() == 401
        store.put_sync(KEY, json.dumps(DOCUMENT).encode())
        until(lambda: server.status() == 200)
    finally:
        server.stop()


def test_a_fixed_document_is_read_once_and_a_broken_one_opens_nothing() -> None:
    source = FixedSource(json.dumps(DOCUMENT))
    assert source.look() == json.dumps(DOCUMENT).encode()
    assert source.look() is None
