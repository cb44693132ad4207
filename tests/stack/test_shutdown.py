"""However the stack ends, no acknowledged write is lost and no process is left."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from e2e.client import claim, in_parallel
from e2e.deployment import STOP_SECONDS_MAX, Deployment, deployment, described, processes_of, until

pytestmark = pytest.mark.stack

CLIENTS = 8
WRITES_BEFORE_THE_END = 40
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)


class Load:
    """Clients that write one claim after the other until their server is gone."""

    def __init__(self, stack: Deployment, name: str) -> None:
        self.acknowledged: dict[str, str] = {}
        """Key to claim id, of every write that was answered 200."""
        self.sent: set[str] = set()
        self._stack = stack
        self._name = name
        self._gone = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        clients = [threading.Thread(target=self._write, args=(number,)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            yield
        finally:
            self._gone.set()
            for client in clients:
                client.join()

    def is_under_way(self) -> bool:
        return len(self.acknowledged) >= WRITES_BEFORE_THE_END

    def _write(self, number: int) -> None:
        with self._stack.client() as client:
            count = 0
            while not self._gone.is_set():
                count += 1
                key = f"{self._name}/{number}/{count}"
                self.sent.add(key)
                try:
                    answer = client.post("claim.assert", claim(f"statement {key}"), key=key)
                except httpx.ConnectError:
                    return  # the server is gone; what was sent before is decided after the restart
                except httpx.TransportError:
                    continue
                if answer.status_code == httpx.codes.OK:
                    self.acknowledged[key] = answer.json()["result"]["claim_id"]

    def check(self, stack: Deployment) -> None:
        """Every acknowledged claim is there as it was written, and sending anything again makes no second one."""
        keys = sorted(self.sent)

        def again(number: int) -> None:
            with stack.client() as client:
                for key in keys[number::CLIENTS]:
                    result = client.decided("claim.assert", claim(f"statement {key}"), key=key)["result"]
                    if key in self.acknowledged:
                        assert (result["claim_id"], result["created"]) == (self.acknowledged[key], False)

        in_parallel(CLIENTS, again)


@pytest.mark.timeout(400)
@pytest.mark.fault_class(3)
def test_no_end_loses_a_write_and_a_restart_keeps_data_keys_ports_and_the_token(tmp_path: Path) -> None:
    port = _free_port()
    with deployment(tmp_path / "stack") as stack:
        kept, loads = [], []
        for number in ENDS:
            stack.start("--port", str(port))
            kept.append((stack.url, stack.generated_tokens(), stack.deployment_variables(), stack.state["s3_url"]))
            load = Load(stack, number.name)
            loads.append(load)
            with load.running():
                until(load.is_under_way, "a load")
                _end(stack, number)
        stack.start("--port", str(port))
        for load in loads:
            load.check(stack)
        with stack.client() as client:
            written = sum(len(load.sent) for load in loads)
            assert client.last_commit_seq() == written, "every write consumed one commit number"
        _end(stack, signal.SIGTERM)
        assert kept == [kept[0]] * len(ENDS)
        assert kept[0][0] == f"http://127.0.0.1:{port}"


def _end(stack: Deployment, number: signal.Signals) -> None:
    """End the supervisor; its children are gone with it, or at once after it if it could not see to that."""
    if number == signal.SIGKILL:
        stack.kill()
        until(lambda: not processes_of(stack.data_dir), "the end of all children", STOP_SECONDS_MAX)
    else:
        assert stack.stop(number) < STOP_SECONDS_MAX, stack.progress()
        assert not (left := processes_of(stack.data_dir)), described(left)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
