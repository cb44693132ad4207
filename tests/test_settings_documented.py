"""The tables of settings in docs/operations.md: every row is read by something, and its default is the default.

That no setting of a deployment is left out, `tests/cli/test_docs.py` sees.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memoree.cli.serving import PROCESS_SETTINGS
from memoree.http.settings import ENVIRONMENT_PREFIX, HttpSettings
from memoree.settings import StackSettings

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
_ROW = re.compile(r"^\| `(MEMOREE_\w+)` \| (?:`([^`]*)`|required|) ?\| (.*) \|$", flags=re.MULTILINE)

ROWS = {name: (default, meaning) for name, default, meaning in _ROW.findall(PAGE.read_text())}
OF_DEPLOYMENTS = {f"{ENVIRONMENT_PREFIX}{name.upper()}" for name in StackSettings.model_fields}
OF_THE_API = sorted(name for name in set(ROWS) - OF_DEPLOYMENTS if name != "MEMOREE_LOG_LEVEL")


def test_every_documented_setting_is_read_and_every_one_that_is_read_is_documented() -> None:
    assert set(ROWS) == OF_DEPLOYMENTS | PROCESS_SETTINGS


def test_no_setting_is_documented_twice_or_without_a_meaning() -> None:
    page = PAGE.read_text()
    assert len(_ROW.findall(page)) == len(ROWS) == page.count("\n| `MEMOREE_")
    assert [name for name, (_, meaning) in ROWS.items() if not meaning] == []


@pytest.mark.parametrize("name", OF_THE_API)
def test_the_documented_default_of_the_api_given_as_a_setting_changes_nothing(name: str) -> None:
    default, _ = ROWS[name]
    assert default, f"{name} has no default in the table"
    assert HttpSettings.from_environment({name: default}) == HttpSettings.from_environment({})
