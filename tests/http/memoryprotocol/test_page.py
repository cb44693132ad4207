"""`docs/memoryprotocol.md` can be typed from its first line to its last, and shows what is answered."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from memoree import limits
from memoree.http.memoryprotocol.door import BODY_BYTES_MAX, KEY_BYTES_MAX

from .protocol import Protocol

PAGE = (Path(__file__).parents[3] / "docs" / "memoryprotocol.md").read_text()
CONTINUED = "    "


def examples() -> list[tuple[str, str]]:
    """Each command with what is printed under it."""
    found: list[tuple[str, str]] = []
    for line in "".join(re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL)).splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), ""))
        else:
            command, shown = found.pop()
            found.append((command + line, shown) if line.startswith(CONTINUED) else (command, shown + line))
    return found


@pytest.mark.fault_class(7)
def test_every_command_of_the_page_answers_what_it_shows(a: Protocol, tmp_path: Path) -> None:
    variables = {**os.environ, "URL": str(a.http.base_url).rstrip("/"), "TOKEN": "tok-a", "no_proxy": "127.0.0.1"}
    typed = examples()
    assert len(typed) >= 11
    for command, shown in typed:
        run = ["bash", "-euc", command]
        done = subprocess.run(run, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        expected = re.escape(shown.strip()).replace("…", ".*")
        assert re.fullmatch(expected, done.stdout.strip(), re.DOTALL), f"{command}\n{done.stdout}"


def test_the_bounds_that_the_page_names_are_those_of_the_program() -> None:
    for bound in (
        f"up to {limits.EPISODE_SOURCE_BYTES_MAX // limits.KIB} KiB, by habit",
        f"at most {limits.METADATA_BYTES_MAX // limits.KIB} KiB, {limits.METADATA_DEPTH_MAX} levels deep",
        f"A body has up to {BODY_BYTES_MAX // limits.MIB} MiB.",
        f"more than {limits.QUEUE_LAG_COMMANDS} writes of the tenant",
        f"a header of up to {KEY_BYTES_MAX} bytes",
    ):
        assert bound in PAGE, bound
