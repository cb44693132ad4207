"""A whole stack under everything that can happen to its processes, while clients write and read over HTTP.

`memoree up` with two api processes, a second writer beside the supervised one, and a hand that kills and freezes: what
is hit, and when, follows from a seed as far as processes allow.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from e2e.client import Client
from e2e.deployment import (
    PROGRAM,
    ROLE_OF_API,
    ROLE_OF_WRITER,
    Deployment,
    child_pids,
    environment,
)
from faults.site import Acknowledged, Citation

PATIENCE_SECONDS = 300.0
"""A write must be decided within this time, whatever happens meanwhile."""
CALM_SECONDS = 0.5
LONG_FREEZE_SECONDS = 60.0
CITED_CHARS = 20_000
CITED_FROM, CITED_TO = 2, 500


@dataclass
class Storm:
    """`counts` is what happened; `acknowledged` what clients were told is durable."""

    stack: Deployment
    tenants: Sequence[str]
    dice: random.Random
    directory: Path
    counts: Counter[str] = field(default_factory=Counter)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _second: subprocess.Popen[bytes] | None = None

    def rage(self, seconds: float, *, clients: int) -> None:
        """Until the time is over and every write that was begun is decided."""
        with ThreadPoolExecutor(clients) as pool:
            running = [pool.submit(self._client, number) for number in range(clients)]
            try:
                self._strike_until(time.monotonic() + seconds, running)
            finally:
                self._over.set()
                self._end_second_writer()
            for each in running:
                each.result()

    # --- the hand -----------------------------------------------------------------------------------------------

    def _strike_until(self, end: float, running: Sequence[Any]) -> None:
        strokes: dict[Callable[[], None], int] = {
            self._kill_writer: 8,
            self._kill_second_writer: 8,
            self._kill_api: 4,
            self._kill_litestream: 4,
            self._freeze_writer: 3,
            self._freeze_store: 2,
            self._kill_store: 1,
        }
        self._start_second_writer()
        while time.monotonic() < end and not any(each.done() for each in running):
            (stroke,) = self.dice.choices(list(strokes), weights=list(strokes.values()))
            stroke()
            self.counts[stroke.__name__.removeprefix("_")] += 1
            self._over.wait(self.dice.uniform(0.0, 2 * CALM_SECONDS))

    def _kill_writer(self) -> None:
        with contextlib.suppress(ProcessLookupError, IndexError):  # it is being started again
            self.stack.kill_child(ROLE_OF_WRITER)

    def _kill_api(self) -> None:
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.killpg(self.dice.choice(self.stack.pids(ROLE_OF_API)), signal.SIGKILL)

    def _kill_litestream(self) -> None:
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(self.dice.choice(self.stack.litestream_pids()), signal.SIGKILL)

    def _kill_store(self) -> None:
        for pid in self.stack.store_pids():
            os.kill(pid, signal.SIGKILL)

    def _freeze_store(self) -> None:
        with self._frozen(self.stack.store_pids()):
            time.sleep(self.dice.uniform(1.0, 10.0))

    def _freeze_writer(self) -> None:
        """Longer than its lease, and now and then for a minute: another one takes over, and it comes back a zombie."""
        programs = [child for leader in self.stack.pids(ROLE_OF_WRITER) for child in child_pids(leader)]
        seconds = LONG_FREEZE_SECONDS if self.dice.random() < 0.1 else self.dice.uniform(6.0, 12.0)
        with self._frozen(programs[:1]):
            self._over.wait(seconds)

    @contextlib.contextmanager
    def _frozen(self, pids: Sequence[int]) -> Iterator[None]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _kill_second_writer(self) -> None:
        self._end_second_writer()
        self._start_second_writer()

    def _start_second_writer(self) -> None:
        with (self.directory / "second-writer.log").open("ab") as log:
            self._second = subprocess.Popen(
                [PROGRAM, "worker", "writer", "--data", self.stack.data_dir],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                cwd="/",
                start_new_session=True,
            )

    def _end_second_writer(self) -> None:
        if self._second is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._second.pid, signal.SIGKILL)
            self._second.wait()
            self._second = None

    # --- the clients --------------------------------------------------------------------------------------------

    def _client(self, number: int) -> None:
        tenant = self.tenants[number % len(self.tenants)]
        dice = random.Random(number)
        with self.stack.client(tenant) as client:
            for turn in range(1_000_000):
                if self._over.is_set():
                    return
                written = self._write(client, tenant, f"{number}/{turn}", cited=dice.random() < 0.1)
                self.acknowledged.append(written)
                if dice.random() < 0.3:
                    self._read_back(client, written)

    def _write(self, client: Client, tenant: str, key: str, *, cited: bool) -> Acknowledged:
        statement = f"statement {key} of {tenant}"
        payload: dict[str, Any] = {"claim_type": "fact", "statement": statement}
        citation = self._artifact(client, key) if cited else None
        if citation is not None:
            payload["evidence"] = [citation.locator()]
        envelope = self._decided(client, "claim.assert", payload, key)
        return Acknowledged(tenant, key, statement, envelope["result"]["claim_id"], envelope["commit_seq"], citation)

    def _artifact(self, client: Client, key: str) -> Citation:
        text = f"{key}: ".ljust(CITED_CHARS, "é")
        payload = {"kind": "note", "title": key, "content": {"type": "text", "data": text}}
        made = self._decided(client, "artifact.put", payload, f"artifact {key}")["result"]
        quoted = text[CITED_FROM:CITED_TO].encode()
        start = len(text[:CITED_FROM].encode())
        return Citation(made["artifact_id"], made["revision_id"], start, start + len(quoted), quoted)

    def _decided(self, client: Client, op: str, payload: dict[str, Any], key: str) -> dict[str, Any]:
        """The envelope of a success; the identical request is sent again while it is undecided."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            envelope = self._asked(client, op, payload, key)
            if envelope is not None and envelope["ok"]:
                return envelope
            if envelope is not None:
                error = envelope["error"]
                assert error["retryable"] or "is given up" in error["message"], envelope
                self.counts[f"answered {error['code']}"] += 1
            assert time.monotonic() < deadline, f"{key} was never decided: {envelope}"
            time.sleep(0.1)

    def _asked(self, client: Client, op: str, payload: dict[str, Any], key: str | None) -> dict[str, Any] | None:
        """`None` when no answer came."""
        try:
            answer: dict[str, Any] = client.post(op, payload, key=key).json()
        except (httpx.TransportError, ValueError):
            self.counts["no answer"] += 1
            return None
        return answer

    def _read_back(self, client: Client, written: Acknowledged) -> None:
        """Whichever api process answers, what was acknowledged is there for who says what they have seen."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        question = {"query": f'"{written.statement}"', "limit": 5, "min_commit_seq": written.commit_seq}
        while True:
            envelope = self._asked(client, "search", question, None)
            if envelope is not None and envelope["ok"]:
                break
            assert envelope is None or envelope["error"]["retryable"], envelope
            assert time.monotonic() < deadline, f"{written.key} cannot be read"
            time.sleep(0.1)
        found = [hit.get("claim_id") or hit.get("entity_id") for hit in envelope["result"]["hits"]]
        assert written.claim_id in found, f"{written} was acknowledged and is not found: {found}"
        self.counts["read back"] += 1
