"""Programs of two versions at once: what one sends, the other applies or leaves for one that can."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.site import Site, until
from memoree import command, limits
from memoree.queue import RECEIVE_COUNT_MAX
from memoree.writer.tenant import UNKNOWN_BACK_OFF_SECONDS

NEWER = command.COMMAND_VERSION + 1


@pytest.mark.proves("operations-75")
def test_commands_of_a_newer_api_wait_for_a_newer_writer(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"{site.tenant}-other"

    async def run() -> None:
        async with site.clients() as clients:
            with site.writer(unknown_seconds=0.2) as older:
                await clients.write("by an older api")
                with monkeypatch.context() as upgraded:
                    upgraded.setattr(command, "COMMAND_VERSION", NEWER)
                    await clients.entrust("by a newer api", tenant=site.tenant)
                await until(lambda: "waits for a newer writer" in older.log(), 20, what="the older writer's word")
                await clients.write("of another tenant meanwhile", tenant=other)
                assert older.stop() == 0
            with site.writer(command_version=NEWER):
                await clients.await_entrusted()
                await clients.write("by an older api, to a newer writer")
        Checker(site, tmp_path).check(clients.acknowledged)

    asyncio.run(run())


@pytest.mark.proves("operations-75")
def test_no_command_is_dead_before_it_is_too_old_to_be_applied() -> None:
    assert UNKNOWN_BACK_OFF_SECONDS * RECEIVE_COUNT_MAX >= limits.COMMAND_AGE_SECONDS_MAX
