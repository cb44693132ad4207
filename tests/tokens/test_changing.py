"""Two who change a tokens file at once, in a file and in an object, and what is in the way of a change."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from memoree.errors import Code, MemoreeError
from memoree.objects import PreconditionFailed, StoreUnavailable
from memoree.objects.filesystem import FilesystemStore
from memoree.objects.s3 import S3Settings
from memoree.tokens import file
from memoree.tokens.administration import TokensAdministration
from memoree.tokens.document import TokenEntry, decode
from memoree.tokens.file import FileSource
from memoree.tokens.places import Access, TokensObject
from memoree.tokens.s3 import ObjectSource
from memoree.tokens.source import FixedSource, TokensSource

KEY = "keys/tokens.json"
ENTRY = TokenEntry(tenant="A", scopes=["recall"])
AT_ONCE = 8


class Faulty(FilesystemStore):
    """Of the next writes, these many take effect and are not answered, or lose against somebody else."""

    unanswered = 0
    lost = 0

    async def put(self, key: str, body: bytes, **how: Any) -> str:
        if self.lost:
            self.lost -= 1
            raise PreconditionFailed("somebody else was faster")
        etag = await super().put(key, body, **how)
        if self.unanswered:
            self.unanswered -= 1
            raise StoreUnavailable("no answer")
        return etag


@pytest.fixture
def store(tmp_path: Path) -> Faulty:
    return Faulty(tmp_path / "objects")


def object_source(store: FilesystemStore) -> ObjectSource:
    @asynccontextmanager
    async def opened() -> AsyncIterator[FilesystemStore]:
        yield store

    return ObjectSource(TokensObject("bucket", KEY), opened)


async def create_many(make: Callable[[], TokensSource], count: int) -> list[str]:
    async def create() -> str:
        source = make()
        async with source.opened():
            return (await TokensAdministration(source).create(ENTRY))[1].id

    return list(await asyncio.gather(*(create() for _ in range(count))))


async def ids_in(source: TokensSource) -> list[str]:
    async with source.opened():
        return [token.id for token in (await TokensAdministration(source).listed()).tokens]


@pytest.mark.proves("tokens-10")
def test_tokens_made_at_once_are_all_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    made = asyncio.run(create_many(lambda: FileSource(path), AT_ONCE))
    assert sorted(asyncio.run(ids_in(FileSource(path)))) == sorted(made)
    assert [each.name for each in tmp_path.iterdir()] == ["tokens.json"]


@pytest.mark.proves("tokens-10")
def test_tokens_made_at_once_are_all_in_the_object(store: Faulty) -> None:
    made = asyncio.run(create_many(lambda: object_source(store), AT_ONCE))
    assert sorted(asyncio.run(ids_in(object_source(store)))) == sorted(made)


@pytest.mark.stack
@pytest.mark.proves("tokens-10")
def test_tokens_made_at_once_are_all_in_a_real_stores_object(seaweedfs: S3Settings, prefix: str) -> None:
    access = Access(seaweedfs.endpoint_url, seaweedfs.region, seaweedfs.access_key_id, seaweedfs.secret_access_key)
    place = TokensObject(seaweedfs.bucket, f"{prefix}{KEY}", access)
    made = asyncio.run(create_many(lambda: ObjectSource(place), 3))
    assert sorted(asyncio.run(ids_in(ObjectSource(place)))) == sorted(made)


@pytest.mark.proves("tokens-10")
def test_tokens_made_by_processes_at_once_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    program = Path(sys.executable).with_name("memoree")
    line = [program, "token", "create", "--tenant", "A", "--scope", "recall", "--tokens", path]
    running = [subprocess.Popen(line, stdout=subprocess.PIPE) for _ in range(3)]
    made = [json.loads(process.communicate(timeout=60)[0])["result"]["id"] for process in running]
    assert sorted(asyncio.run(ids_in(FileSource(path)))) == sorted(made)


def test_a_write_that_was_not_answered_is_looked_for_and_not_repeated(store: Faulty) -> None:
    store.unanswered = 1
    (made,) = asyncio.run(create_many(lambda: object_source(store), 1))
    assert asyncio.run(ids_in(object_source(store))) == [made]

    async def revoke() -> str:
        source = object_source(store)
        async with source.opened():
            store.unanswered = 1
            return (await TokensAdministration(source).revoke(made)).id

    assert asyncio.run(revoke()) == made
    assert asyncio.run(ids_in(object_source(store))) == []


def test_a_write_that_lost_is_made_again_on_what_the_other_left(store: Faulty) -> None:
    (first,) = asyncio.run(create_many(lambda: object_source(store), 1))
    store.lost = 2
    (second,) = asyncio.run(create_many(lambda: object_source(store), 1))
    assert asyncio.run(ids_in(object_source(store))) == [first, second]


def test_a_store_that_never_takes_it_is_given_up(store: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memoree.tokens.s3.CHANGE_SECONDS_MAX", 0.3)
    store.lost = 1_000_000
    with pytest.raises(MemoreeError) as refused:
        asyncio.run(create_many(lambda: object_source(store), 1))
    assert refused.value.code is Code.TRANSPORT_ERROR


@pytest.mark.proves("tokens-10")
@pytest.mark.parametrize("raw", [b"", b"{", b"[]"])
def test_what_is_no_tokens_file_stays_as_it_is(tmp_path: Path, store: Faulty, raw: bytes) -> None:
    path = tmp_path / "tokens.json"
    path.write_bytes(raw)
    store.put_sync(KEY, raw)
    for make in (lambda: FileSource(path), lambda: object_source(store)):
        with pytest.raises(MemoreeError, match="cannot be used") as refused:
            asyncio.run(create_many(make, 1))
        assert refused.value.code is Code.CONFIG_ERROR
    assert (path.read_bytes(), store.get_sync(KEY).body) == (raw, raw)  # type: ignore[union-attr]


def test_a_changed_file_keeps_its_mode_and_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    path, link = tmp_path / "secrets" / "tokens.json", tmp_path / "tokens.json"
    path.write_text("{}")
    path.chmod(0o640)
    link.symlink_to(path)
    asyncio.run(create_many(lambda: FileSource(link), 1))
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert len(decode(path.read_bytes())) == 1


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    asyncio.run(create_many(lambda: FileSource(tmp_path / "tokens.json"), 1))
    assert (tmp_path / "tokens.json").stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_says_why_and_not_where(tmp_path: Path) -> None:
    with pytest.raises(MemoreeError, match="cannot be changed: No such file or directory") as refused:
        asyncio.run(create_many(lambda: FileSource(tmp_path / "missing" / "tokens.json"), 1))
    assert str(tmp_path) not in refused.value.message


def test_who_holds_the_file_for_long_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "LOCK_SECONDS_MAX", 0.1)
    holder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(MemoreeError) as refused:
            asyncio.run(create_many(lambda: FileSource(tmp_path / "tokens.json"), 1))
    finally:
        os.close(holder)
    assert (refused.value.code, refused.value.retryable) == (Code.TRANSPORT_ERROR, True)


@pytest.mark.proves("tokens-13")
def test_tokens_of_the_environment_say_where_they_are_changed() -> None:
    with pytest.raises(MemoreeError, match="MEMOREE_TOKENS") as refused:
        asyncio.run(create_many(lambda: FixedSource("{}"), 1))
    assert refused.value.code is Code.CONFIG_ERROR
