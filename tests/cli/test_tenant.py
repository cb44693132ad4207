"""`memoree tenant`: what its options mean, and that a deletion takes two steps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memoree.cli import tenant
from memoree.cli.commands import run
from memoree.cli.invocation import Invocation
from memoree.cli.main import guarded
from memoree.tenants import Tenants
from tenants_support import CONFIRMATION, FakeTenants


@dataclass
class Desk:
    """The commands, in this process, over tenants of a test's own."""

    tenants: FakeTenants
    capsys: pytest.CaptureFixture[str]

    def run(self, *line: str) -> tuple[int, dict[str, Any]]:
        """The exit status, and the result or the error."""
        status = guarded(lambda invocation: run(["tenant", *line], invocation), Invocation())
        output = self.capsys.readouterr().out
        envelope = json.loads(output) if output else {}
        return status, envelope.get("result") or envelope.get("error") or {}


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    tenants = FakeTenants("acme", "beta", "gamma")

    def administered(_: Path | None, work: Callable[[Tenants], Awaitable[Mapping[str, Any]]]) -> Mapping[str, Any]:
        async def working() -> Mapping[str, Any]:
            return await work(tenants)

        return asyncio.run(working())

    monkeypatch.setattr(tenant, "_administered", administered)
    return Desk(tenants, capsys)


def test_names_come_page_by_page(desk: Desk) -> None:
    assert desk.run("list", "--limit", "2") == (0, {"tenants": ["acme", "beta"], "next": "beta"})
    assert desk.run("list", "--limit", "2", "--after", "beta") == (0, {"tenants": ["gamma"]})
    assert desk.run("list", "--limit", "3") == (0, {"tenants": ["acme", "beta", "gamma"]})
    assert desk.run("list", "--limit", "0")[0] == 2


def test_one_is_shown(desk: Desk) -> None:
    assert desk.run("show", "acme")[1].get("rows") == 3
    status, error = desk.run("show", "nobody")
    assert (status, error.get("code")) == (3, "NOT_FOUND")


def test_only_limits_that_are_given_change_and_none_takes_one_away(desk: Desk) -> None:
    assert desk.run("quota", "acme", "--rows", "5", "--rate", "2.5")[0] == 0
    assert desk.run("quota", "acme", "--bytes", "none", "--burst", "0")[0] == 0
    assert desk.run("create", "delta", "--rows", "none")[1].get("created") is True
    assert desk.run("create", "acme")[1].get("created") is False
    assert desk.tenants.asked == [
        ("quota", "acme", {"rows_max": 5, "rate_per_second": 2.5}),
        ("quota", "acme", {"bytes_max": None, "rate_burst": 0}),
        ("create", "delta", {"rows_max": None}),
        ("create", "acme", {}),
    ]


@pytest.mark.parametrize("options", [(), ("--rows", "many"), ("--rows", "1.5")])
def test_a_quota_of_nothing_or_of_no_number_is_a_mistake(desk: Desk, options: tuple[str, ...]) -> None:
    assert desk.run("quota", "acme", *options)[0] == 2
    assert desk.tenants.asked == []


@pytest.mark.proves("fault-19", "operations-85")
def test_a_deletion_is_told_before_it_is_done(desk: Desk) -> None:
    status, told = desk.run("delete", "acme")
    assert (status, told.get("rows"), told.get("confirmation")) == (0, 3, CONFIRMATION)
    assert desk.tenants.asked == []
    status, error = desk.run("delete", "acme", "--confirm", "wrong")
    assert (status, error.get("code"), desk.tenants.asked) == (4, "REVISION_CONFLICT", [])
    assert desk.run("delete", "acme", "--confirm", CONFIRMATION)[0] == 0
    assert desk.tenants.asked == [("delete", "acme")]


def test_scripts_take_both_steps_at_once(desk: Desk) -> None:
    assert desk.run("delete", "acme", "--yes")[0] == 0
    assert desk.tenants.asked == [("delete", "acme")]


def test_what_could_not_be_removed_is_an_exit_status(desk: Desk) -> None:
    desk.tenants.complete = False
    assert desk.run("delete", "acme", "--yes") == (1, {"tenant": "acme", "complete": False})
