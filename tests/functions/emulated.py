"""The real zips under AWS's own emulator of the runtime interface: each function a process, as in its container."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
HANDLER = "functions.{}.handler.handler"
INVOCATIONS = "/2015-03-31/functions/function/invocations"
START_SECONDS_MAX = 60.0
INVOKE_SECONDS_MAX = 120.0


@dataclass(frozen=True)
class Unpacked:
    """What a function finds on its host: `opt` of the layers, `task` of its own zip."""

    opt: Path
    task: Path


@dataclass
class Emulated:
    """One function. Its process serves one event at a time."""

    name: str
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def __call__(self, event: Json, context: object = None) -> Json:
        """The function's answer. Raises `FunctionError` for what it raised."""
        answer = httpx.post(self.url + INVOCATIONS, json=event, timeout=INVOKE_SECONDS_MAX, trust_env=False)
        document: Json = answer.json()
        if "errorType" in document:
            raise FunctionError(f"{document['errorType']}: {document['errorMessage']}\n{self.output()}")
        return document

    def output(self) -> str:
        return self.log.read_text(errors="replace")


class FunctionError(Exception):
    """What a function ended with."""


def deployed(names: Sequence[str], where: Path, lock: Path) -> dict[str, Unpacked]:
    """The zips of the script that deployments use, unpacked with the modes that Lambda gives them: the layers once,
    and the code of each function. One process at a time builds; layers that are there and current are left."""
    zips = ROOT / "build" / "functions"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        subprocess.run([ROOT / "scripts/install-lambda"], check=True)
        subprocess.run([ROOT / "scripts/build-functions", "--out", zips], check=True, stdout=subprocess.DEVNULL)
        for layer in ("dependencies", "litestream"):
            _extract(zips / f"{layer}.zip", where / "opt")
        for name in names:
            _extract(zips / f"{name}.zip", where / name)
    return {name: Unpacked(where / "opt", where / name) for name in names}


def _extract(path: Path, where: Path) -> None:
    with zipfile.ZipFile(path) as packed:
        packed.extractall(where)
        for entry in packed.infolist():
            where.joinpath(entry.filename).chmod(entry.external_attr >> 16)


@contextlib.contextmanager
def emulated(name: str, unpacked: Unpacked, variables: Mapping[str, str], home: Path) -> Iterator[Emulated]:
    """Killed at the end of the block, with everything it started. It finds no package but those of its zips."""
    home.mkdir(parents=True, exist_ok=True)
    port, runtime_port = _free_port(), _free_port()
    log = home / "log"
    environment = {
        "PATH": f"{unpacked.opt / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{unpacked.task}:{unpacked.opt / 'python'}:{ROOT / '.venv-lambda/runtime'}",
        "HOME": str(home),
        "TMPDIR": str(home),
        "AWS_LAMBDA_FUNCTION_NAME": f"memoree-{name}",
        "AWS_LAMBDA_FUNCTION_TIMEOUT": str(round(INVOKE_SECONDS_MAX)),
        **variables,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                ROOT / ".venv-lambda/bin/aws-lambda-rie",
                *("--runtime-interface-emulator-address", f"127.0.0.1:{port}"),
                *("--runtime-api-address", f"127.0.0.1:{runtime_port}"),
                *(ROOT / ".venv-lambda/bin/python", "-S", "-m", "awslambdaric", HANDLER.format(name)),
            ],
            cwd=unpacked.task,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_for_port(port, process, log)
        yield Emulated(name, f"http://127.0.0.1:{port}", process, log)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.02)
    raise RuntimeError(f"the emulator did not start:\n{log.read_text()}")


@contextlib.contextmanager
def local_aws(home: Path) -> Iterator[str]:
    """`localstack/start`, with what its hook makes; yields its address."""
    port = _free_port()
    with (home / "localstack.log").open("wb") as log:
        process = subprocess.Popen(
            [ROOT / "localstack/start", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("READY "), (home / "localstack.log").read_text()
        yield line.split()[1]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def last_json(text: str) -> Json:
    """The last line of a log that is a JSON document."""
    for line in reversed(text.splitlines()):
        with contextlib.suppress(json.JSONDecodeError):
            if isinstance(document := json.loads(line), dict):
                return document
    raise AssertionError(f"no JSON in:\n{text}")
