"""The half of a run that lives inside pytest: which tests prove the assertions in question, and how they fail.

Loaded with `-p planted.plugin` into a pytest of its own, whose `memoree` is a copy with a fault in it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import memoree
from memoree.errors import Code, MemoreeError

INTERNAL_FAULT = "an internal fault reached the caller"
"""What the doors of the tests say of an answer that is a crash."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("planted faults")
    group.addoption(
        "--proving", required=True, metavar="KEY,KEY", help="run only the tests that prove these assertions"
    )
    group.addoption("--package-in", required=True, type=Path, metavar="DIR", help="where memoree must come from")
    group.addoption("--report", required=True, type=Path, metavar="FILE", help="what became of the tests, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    expected, found = Path(config.getoption("--package-in")).resolve(), Path(str(memoree.__file__)).resolve()
    if not found.is_relative_to(expected):
        raise pytest.UsageError(f"memoree comes from {found}, not from {expected}")
    config.pluginmanager.register(Witness(config), "planted-witness")


class Witness:
    """Remembers, per assertion, the test functions that failed, and runs none of them any further."""

    def __init__(self, config: pytest.Config) -> None:
        self._report: Path = config.getoption("--report")
        self._package: Path = config.getoption("--package-in")
        self._wanted = frozenset(config.getoption("--proving").split(","))
        self._caught: defaultdict[str, set[str]] = defaultdict(set)
        self._passed: defaultdict[str, set[str]] = defaultdict(set)
        self._crashed: dict[str, str] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = [item for item in items if self._keys(item)]
        config.hook.pytest_deselected(items=[item for item in items if not self._keys(item)])
        items[:] = kept

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if all(function_of(item) in self._caught[key] for key in self._keys(item)):
            pytest.skip("this test has failed already")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report: pytest.TestReport = yield
        if report.failed and not (call.when == "call" and call.excinfo and self._is_verdict(call.excinfo)):
            self._crashed.setdefault(function_of(item), f"{call.when}: {call.excinfo and call.excinfo.exconly()}"[:300])
        elif call.when == "call" and not report.skipped:
            outcomes = self._caught if report.failed else self._passed
            for key in self._keys(item):
                outcomes[key].add(function_of(item))
        return report

    def pytest_sessionfinish(self) -> None:
        document = {
            "caught": {key: sorted(tests) for key, tests in self._caught.items() if tests},
            "passed": {key: sorted(tests - self._caught[key]) for key, tests in self._passed.items()},
            "crashed": self._crashed,
        }
        self._report.write_text(json.dumps(document), encoding="utf-8")

    def _keys(self, item: pytest.Item) -> frozenset[str]:
        return self._wanted & {str(key) for marker in item.iter_markers("proves") for key in marker.args}

    def _is_verdict(self, excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
        """Whether a test judged what it saw. A test that merely fell over proves nothing about its assertion: a program
        that crashes fails every test."""
        error = excinfo.value
        if isinstance(error, MemoreeError):
            return error.code is not Code.INTERNAL_ERROR
        if isinstance(error, pytest.fail.Exception):
            return "Timeout" not in str(error)
        inside = Path(excinfo.traceback[-1].path).is_relative_to(self._package)
        return isinstance(error, AssertionError) and not inside and INTERNAL_FAULT not in str(error)


def function_of(item: pytest.Item) -> str:
    """The node id without its parameters."""
    return item.nodeid.partition("[")[0]
