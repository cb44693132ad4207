"""What the README, the guide and the page about retrieval print is what works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.screen import on_terminal
from memoree.assembly import embedded_service

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TYPED = ("guide.md", "retrieval.md", "agents.md")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", README, flags=re.MULTILINE | re.DOTALL))


def commands(section: str) -> list[str]:
    """The lines a reader would type, in order."""
    blocks = re.findall(r"```console\n(.*?)```", SECTIONS[section], flags=re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def newcomer(home: Path) -> dict[str, str]:
    """The environment of somebody who has installed the project and set nothing."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MEMOREE_")}
    return {
        **inherited,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_DATA_HOME": str(home / "share"),
        "XDG_CONFIG_HOME": str(home / "config"),
    }


@pytest.mark.fault_class(7)
def test_the_first_session_works_as_printed(tmp_path: Path) -> None:
    typed = [line for line in commands("Try it") if line.startswith(("memoree ", "echo "))]
    names = [line.split()[1] for line in typed if line.startswith("memoree")]
    assert names == ["init", "artifact", "claim", "search", "recall", "recall"]
    (tmp_path / "kiln").mkdir()
    done = subprocess.run(
        ["bash", "-euc", "\n".join(typed)],
        cwd=tmp_path / "kiln",
        env=newcomer(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(answer["ok"] for answer in answers)
    searched, *recalled, called = (answer["result"] for answer in answers[3:])
    for found in (searched, called):
        assert {hit["entity_type"] for hit in found["hits"]} == {"artifact", "claim"}
    assert [answer["presence"] for answer in recalled] == ["claims", "none"]


@pytest.mark.fault_class(7)
def test_the_request_of_the_http_example_succeeds_as_printed(tmp_path: Path) -> None:
    (body,) = re.findall(r"-d '(\{.*?\})'\n", SECTIONS["Serve it"], flags=re.DOTALL)
    service = embedded_service(tmp_path)
    try:
        assert json.loads(service.call_bytes(body.encode()))["ok"] is True
    finally:
        service.close_sync()


@pytest.mark.fault_class(7)
@pytest.mark.parametrize("page", TYPED)
def test_a_page_can_be_typed_from_its_first_line_to_its_last_and_shows_what_it_says(page: str, tmp_path: Path) -> None:
    """Up to two dozen commands, each a process: they are what is tested."""
    text = (ROOT / "docs" / page).read_text()
    lines = "".join(re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)).splitlines()
    typed = [line.removeprefix("$ ") for line in lines if line.startswith(("$ ", "    "))]
    shown = [line for line in lines if not line.startswith(("$ ", "    "))]
    status, output = on_terminal(["bash", "-euc", "\n".join(typed)], cwd=tmp_path, environment=newcomer(tmp_path))
    assert status == 0, output
    rest = iter(line.rstrip() for line in output.splitlines())
    for line in shown:
        expected = re.compile(re.escape(line).replace("…", ".*"))
        assert any(map(expected.fullmatch, rest)), f"{line!r} is not where the guide has it in:\n{output}"
