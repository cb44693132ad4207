"""What a command does not need it does not import: checked by the modules that are loaded, not by a clock."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import Shell

HEAVY = {"aiobotocore", "apsw", "asyncio", "httpx", "pydantic", "rich", "starlette", "ulid", "uvicorn"}
REPORT = """
import json, os, sys
from memoree.cli import main
sys.argv = {argv!r}
def leave(status):
    sys.stderr.write("\\nmodules " + " ".join({{name.split(".")[0] for name in sys.modules}}))
    sys.stderr.flush()
    os._exit(0)
main._leave = leave
leave(main.main())
"""


def modules_of(shell: Shell, *arguments: str, stdin: bytes = b"") -> set[str]:
    """The top-level packages that are loaded when the command ends."""
    code = REPORT.format(argv=["memoree", *arguments])
    done = subprocess.run(
        [sys.executable, "-c", code], input=stdin, capture_output=True, cwd=shell.cwd, env=shell.environment, timeout=60
    )
    return set(done.stderr.decode().rsplit("modules ", 1)[1].split())


@pytest.mark.parametrize(
    "line",
    ["--help", "--version", "call --help", "artifact --help", "artifact put --help", "search --help", "serve --help"],
)
def test_help_loads_no_store_and_no_server(shell: Shell, line: str) -> None:
    loaded = modules_of(shell, *line.split())
    assert "click" in loaded
    assert not HEAVY & loaded


def test_a_call_on_the_local_store_loads_neither_parser_nor_client_nor_loop(shell: Shell) -> None:
    loaded = modules_of(shell, "call", stdin=b'{"request_id":"a","op":"doctor","input":{}}')
    assert "apsw" in loaded
    assert not {"click", "asyncio", "httpx", "rich", "starlette", "uvicorn", "ssl"} & loaded


def test_a_call_to_a_server_does_not_load_the_store(shell: Shell) -> None:
    line = ["call", "--endpoint", "http://127.0.0.1:9"]
    loaded = modules_of(shell, *line, stdin=b'{"request_id":"a","op":"doctor","input":{}}')
    assert not {"apsw", "click", "asyncio", "httpx", "rich"} & loaded
