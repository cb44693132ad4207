"""The documentation of the command line is what the program says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic.fields import FieldInfo

from memoree.cli.serving import PROCESS_SETTINGS
from memoree.http import openapi
from memoree.http.settings import HttpSettings
from memoree.settings import StackSettings

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "scripts" / "docs_help.py"
DOCUMENT = ROOT / "docs" / "cli.md"
OPERATIONS = ROOT / "docs" / "operations.md"


def check(*arguments: str | Path) -> int:
    done = subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done.returncode


def test_every_command_is_documented_as_it_is() -> None:
    assert check("--check") == 0


@pytest.mark.parametrize(
    ("written", "changed"),
    [
        ("<!-- help: memoree artifact put -->", "<!-- help: memoree artifact putt -->"),
        ("--idempotency-key KEY", "--key KEY"),
    ],
)
def test_a_missing_command_and_a_changed_option_are_noticed(tmp_path: Path, written: str, changed: str) -> None:
    copy = tmp_path / "cli.md"
    original = DOCUMENT.read_text()
    assert written in original
    copy.write_text(original.replace(written, changed))
    assert check("--check", copy) == 1
    assert check(copy) == 0
    assert check("--check", copy) == 0


def test_every_setting_of_a_deployment_is_documented_with_its_default() -> None:
    rows = [line.split("|") for line in OPERATIONS.read_text().splitlines() if line.startswith("| `MEMOREE_")]
    documented = {cells[1].strip(): cells[2].strip() for cells in rows}
    for name, field in StackSettings.model_fields.items():
        assert documented[f"`MEMOREE_{name.upper()}`"] == shown_default(field)


def test_every_route_has_a_curl_of_its_own() -> None:
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("http.md", "streaming.md", "memoryprotocol.md"))
    given = re.compile(r"/(\$[A-Z]+|[0-9A-Z]{26}|none)\b")
    asked = [given.sub("/{}", url) for url in re.findall(r'"\$URL(/[^"?]+)', pages)]
    answered = {re.sub(r"\{\w+\}", "{}", path) for path in openapi.document(authorization=True, metrics=False)["paths"]}
    sent_where_it_was_told = "/v1/artifacts/uploads/{}/content"
    assert set(asked) <= answered | {"/openapi.json", "/v1/schema"}
    assert {path for path in answered if path.startswith("/v1/")} - {sent_where_it_was_told} <= set(asked)


def test_every_setting_of_the_api_is_documented() -> None:
    asked: set[str] = set()

    class Asked(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            asked.add(name)
            return default

    HttpSettings.from_environment(Asked())
    assert len(asked) >= 7
    assert [name for name in asked if f"| `{name}` |" not in OPERATIONS.read_text()] == []
    of_deployments = {f"MEMOREE_{name.upper()}" for name in StackSettings.model_fields}
    assert asked <= PROCESS_SETTINGS | of_deployments


def shown_default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is None:
        return ""
    if isinstance(field.default, bool | tuple):
        return f"`{orjson.dumps(field.default).decode()}`"
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


def test_every_variable_of_the_client_is_documented() -> None:
    from memoree.cli import invocation, wrapper
    from memoree.client import endpoint
    from memoree.context import CONTEXT_VARIABLE

    names = [CONTEXT_VARIABLE, endpoint.TOKEN_VARIABLE, wrapper.ACTOR_VARIABLE]
    for name in [*names, invocation.ENDPOINT_VARIABLE, "MEMOREE_HOME", "MEMOREE_DATA_DIR"]:
        assert f"`{name}`" in DOCUMENT.read_text()
