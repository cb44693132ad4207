"""A disk that fills up under each part in turn, on a small file system of its own: told, nothing lost, and gone on with
when there is room again. Mounting one takes root."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.checker import Checker
from faults.site import Clients, Site
from memoree.assembly import embedded_service
from memoree.service import Reply
from test_embedded import call

pytestmark = [pytest.mark.nightly, pytest.mark.proves("operations-5")]

MIB = 1024 * 1024
PIECE_BYTES = 4096
PAGES_MAX, PAGE_WORDS = 400, 4000
NOTE = {"kind": "note", "title": "t", "media_type": "application/octet-stream"}


class SmallDisk:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Down to the last byte."""
        with self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(MIB)):
                pass
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(PIECE_BYTES)):
                pass
        assert os.statvfs(self.path).f_bavail == 0

    def free(self) -> None:
        self._ballast.unlink()


@contextlib.contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[SmallDisk]:
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", path], check=True)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def test_a_full_data_directory_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 24 * MIB) as disk:
        service = embedded_service(disk.path / "data")
        kept = [call(service, "claim.assert", _claim(number), key=f"k{number}") for number in range(20)]
        disk.fill()
        refused = call(service, "artifact.put", {**NOTE, "content": _text("x" * MIB)}, key="large")
        told = call(service, "claim.assert", _claim(99), key="k99")
        disk.free()
        again = call(service, "claim.assert", _claim(99), key="k99")
        verified = call(service, "verify", {})
        statements = {
            call(service, "claim.get", {"claim_id": each["result"]["claim_id"]})["result"]["statement"] for each in kept
        }
        service.close_sync()
    assert not refused["ok"], refused
    assert told["ok"] or "disk is full" in told["error"]["message"], told
    assert again["ok"] and verified["result"]["ok"], (again, verified)
    assert statements == {_claim(number)["statement"] for number in range(20)}


@pytest.mark.stack
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", ["writer", "queue"])
def test_a_full_disk_of_the_writer_or_the_queue_loses_nothing(
    part: str, make_site: Callable[..., Site], tmp_path: Path
) -> None:
    async def run(disk: SmallDisk) -> None:
        own = {"runtime_dir": disk.path / "runtime"} if part == "writer" else {}
        site = make_site(**({"queue_url": f"sqlite://{disk.path / 'queue.sqlite3'}"} if part == "queue" else {}))
        async with site.clients() as clients:
            with site.writer(**own):
                await clients.write_many("before", 10)
                disk.fill()
                decided, undecided = await _write_until_it_is_full(clients)
                disk.free()
                assert undecided.envelope["error"]["retryable"], undecided.envelope
                for number in range(decided + 1):
                    await clients.decided("artifact.put", _page(number), key=f"page {number}")
                await clients.write_many("after", 10)
                await clients.repeat_all()
        Checker(site, tmp_path).check(clients.acknowledged)

    with small_disk(tmp_path / "disk", 64 * MIB) as disk:
        asyncio.run(run(disk))


async def _write_until_it_is_full(clients: Clients) -> tuple[int, Reply]:
    """What fitted into pages that were there already, and the first answer that was no success."""
    for number in range(PAGES_MAX):
        reply = await clients.call("artifact.put", _page(number), key=f"page {number}", wait_seconds=2.0)
        if not reply.envelope["ok"]:
            return number, reply
    raise AssertionError("the disk was never full")


def _page(number: int) -> dict[str, object]:
    words = " ".join(f"word{number}x{position}" for position in range(PAGE_WORDS))
    return {"kind": "note", "title": f"page {number}", "content": _text(words)}


def _claim(number: int) -> dict[str, str]:
    return {"claim_type": "fact", "statement": f"statement {number}"}


def _text(data: str) -> dict[str, str]:
    return {"type": "text", "data": data}
