"""A directory that is watched is in the store soon after it changed; so is one that a connector delivers."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from connectors.support import Runs, content_of
from memoree.assembly import embedded_ingestion
from memoree.bundles import watching
from memoree.bundles.sync import Report, Wishes
from memoree.bundles.watching import fingerprint, watch
from memoree.connectors.messages import Destination
from memoree.connectors.okf import OkfConnector
from memoree.connectors.outlets import worked_off
from memoree.connectors.running import Runner
from memoree.connectors.state import State
from memoree.envelope import parse
from memoree.errors import MemoreeError
from memoree.okf import bundle
from memoree.okf.bundle import Tiers

from .stored import CONTEXT, Recorder, Store, node, opened, write

PATIENCE_SECONDS = 20.0
FILES: dict[str, str | bytes] = {"concepts/a.md": node("A", "alder"), "concepts/b.md": node("B", "birch")}


def until(found: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not found():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def aged(root: Path, seconds: float = 60) -> Path:
    """The directory as if nothing in it had changed for a while."""
    for at in root.rglob("*"):
        os.utime(at, (time.time() - seconds,) * 2)
    return root


@contextmanager
def watched(root: Path, door: Any, **wishes: Any) -> Iterator[list[Report]]:
    stop, told = threading.Event(), list[Report]()
    thread = threading.Thread(
        target=watch,
        args=(root, door, Wishes(**wishes)),
        kwargs={"interval_seconds": 0.05, "tell": told.append, "warn": print, "stop": stop},
    )
    thread.start()
    try:
        yield told
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "data") as found:
        yield found


@pytest.mark.proves("okf-79")
def test_a_file_that_is_edited_between_two_calls_is_seen_by_the_second(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", FILES)
    with watched(root, store.door):
        until(lambda: len(store.listing()) == 2, "the first import")
        assert store.ask("okf.search", query="chestnut")["count"] == 0
        write(root, {"concepts/a.md": node("A", "chestnut")})
        until(lambda: store.ask("okf.search", query="chestnut")["count"] == 1, "the edit")
        (root / "concepts/b.md").unlink()
        until(lambda: sorted(store.listing()) == ["concepts/a.md"], "the deletion")


def test_a_look_at_a_directory_that_rests_reads_no_file_and_sends_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = aged(write(tmp_path / "bundle", FILES))
    monkeypatch.setattr(watching, "SETTLED_NANOSECONDS", 0)  # the time of change cannot be set back
    looks: list[int] = []
    reads: list[int] = []
    look, read = watching.fingerprint, bundle.files

    def looked(*given: Any) -> tuple[str, int]:
        looks.append(1)
        return look(*given)

    def walked(*given: Any) -> Any:
        reads.append(1)
        return read(*given)

    monkeypatch.setattr(watching, "fingerprint", looked)
    monkeypatch.setattr(bundle, "files", walked)
    recorder = Recorder(store)
    with watched(root, recorder) as told:
        until(lambda: len(looks) >= 5, "some looks")
        assert len(told) == len(reads) == 1
        sent = len(recorder.commands)
        until(lambda: len(looks) >= 8, "more looks")
        assert (len(reads), len(recorder.commands)) == (1, sent)


def test_a_look_notices_whatever_an_import_would(tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", {**FILES, "mirror/x/m.md": node("M"), "ledger/events.jsonl": b""})
    seen = {fingerprint(root, Tiers())[0]}

    def changed() -> bool:
        found = fingerprint(root, Tiers())[0]
        is_new = found not in seen
        seen.add(found)
        return is_new

    assert not changed()
    write(root, {"concepts/a.md": node("A", "alter")})
    assert changed()
    (root / "concepts/b.md").rename(root / "concepts/c.md")
    assert changed()
    write(root, {"ledger/events.jsonl": b"{}\n"})
    assert changed()
    write(root, {"mirror/x/m.md": node("N"), "docs/x.md": "x", "concepts/_t.md": "x", "concepts/x.txt": "x"})
    assert not changed()
    (root / "concepts/deep").mkdir()
    write(root, {"concepts/deep/x.md": "x"})
    assert changed()


def test_a_watch_goes_on_after_a_failure(store: Store, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", FILES)
    with watched(root, store.door):
        until(lambda: len(store.listing()) == 2, "the first import")
        root.rename(tmp_path / "away")
        time.sleep(0.2)
        (tmp_path / "away").rename(root)
        write(root, {"concepts/c.md": node("C")})
        until(lambda: len(store.listing()) == 3, "the import after the directory came back")


def test_a_directory_that_never_was_is_told_at_once(store: Store, tmp_path: Path) -> None:
    with pytest.raises(MemoreeError, match="does not exist"):
        watch(tmp_path / "nowhere", store.door, Wishes(), interval_seconds=0.05, tell=lambda _: None, warn=print)


# --- the connector ----------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "state" / "okf.sqlite3", source="okf:bundle")


def test_a_connector_says_what_changed_and_keeps_secrets(runs: Runs, tmp_path: Path) -> None:
    hidden = {"concepts/s.md": node("S", visibility="secret"), "inbox/n.md": node("N"), "mirror/e/m.md": node("M")}
    root = write(tmp_path / "bundle", {**FILES, **hidden})
    _, first = runs.run(OkfConnector(root))
    assert first.ids() == ["concepts/a.md", "concepts/b.md"]
    assert content_of(first.one("concepts/a.md")) == str(FILES["concepts/a.md"]).encode()
    assert first.registered[0].source.system == "okf"
    _, second = runs.run(OkfConnector(root))
    assert (second.ids(), second.withdrawn) == ([], [])
    write(root, {"concepts/a.md": node("A", visibility="secret"), "concepts/b.md": node("B", "beech")})
    _, third = runs.run(OkfConnector(root))
    assert (third.ids(), third.withdrawn) == (["concepts/b.md"], ["concepts/a.md"])
    write(root, {"concepts/b.md": node("B", visibility="secret")})
    _, last = runs.run(OkfConnector(root))
    assert (last.ids(), last.withdrawn) == ([], ["concepts/b.md"])


def test_a_connector_does_not_take_an_unread_file_for_a_deleted_one(runs: Runs, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", FILES)
    runs.run(OkfConnector(root))
    (root / "concepts/a.md").write_bytes(b"x" * (2 * 1024 * 1024 + 1))
    summary, outbox = runs.run(OkfConnector(root))
    assert (summary.skipped_count, outbox.ids(), outbox.withdrawn) == (1, [], [])


def test_what_a_connector_delivers_is_a_bundle_of_the_store(tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", FILES)
    destination = parse(
        Destination,
        {"tenant": "local", "context": CONTEXT["context"], "source": "okf:bundle", "item_kind": "okf.node"},
    )

    async def run() -> None:
        async with embedded_ingestion(tmp_path / "data") as opened_queue:
            with State.open(tmp_path / "state.sqlite3") as state:
                await Runner(OkfConnector(root), destination, state, lambda: worked_off(opened_queue)).once()

    asyncio.run(run())
    write(root, {"concepts/a.md": node("A", "aspen")})
    (root / "concepts/b.md").unlink()
    asyncio.run(run())
    with opened(tmp_path / "data") as store:
        assert store.files() == {"concepts/a.md": node("A", "aspen").encode()}
        assert store.ask("okf.search", query="aspen")["results"][0]["id"] == "concepts/a"
