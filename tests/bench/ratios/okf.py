"""Bundles of Markdown files: a search of ten thousand nodes, an import of as many files, and an import of a directory
that did not change.

The floor of an import is what no import can do without: every file is read and parsed, and the rows that the import
leaves are inserted by a bare loop, as `bare_sqlite` tells.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoree.assembly import embedded_facts, embedded_service
from memoree.bundles.sync import Wishes, import_bundle
from memoree.client.batches import Command as Told
from memoree.client.batches import EmbeddedDoor, Outcome
from memoree.clock import utc_now
from memoree.command import Command
from memoree.envelope import Envelope
from memoree.envelope import parse as parse_shape
from memoree.okf import bundle
from memoree.okf.node import parse
from memoree.operations.call import validate
from memoree.service import new_command

from .. import data
from ..bare_sqlite import BareSqlite
from ..figures import Figure, Ratio, latencies_ms, p50
from ..site import Site

CONTEXT = {"context": {"workspace_id": "wsp_default", "project_id": "prj_default"}, "context_source": "explicit"}
FOLDERS = {
    "Concept": "concepts",
    "Entity": "entities",
    "Project": "projects",
    "Plan": "projects",
    "Decision": "concepts",
    "Task": "projects",
    "Session": "concepts",
    "Analysis": "concepts",
    "Research": "concepts",
    "Idea": "concepts",
}
KEYS = ("about", "covers", "informs", "led_to", "uses", "depends_on", "related", "member_of")
SUPERSEDING_EVERY = 50
WORDS_MIN, WORDS_MAX = 3, 5


@dataclass(frozen=True, slots=True)
class Imported:
    """A bundle and the store it was imported into. Seconds: of the first import, of one without changes, and of the
    floor."""

    directory: Path
    files: int
    first_seconds: float
    again_seconds: float
    floor_seconds: float


async def imported(site: Site) -> Imported:
    return await site.once_for_all(_imported)


async def _imported(site: Site) -> Imported:
    return await asyncio.to_thread(_import, site.directory / "okf", site.plan.okf_nodes)


def write(root: Path, count: int) -> None:
    """Nodes of all types with fields, relations and links to each other, from a committed seed."""
    chooser = random.Random(113)
    types = list(FOLDERS)
    names = [f"{FOLDERS[types[at % len(types)]]}/node-{at}" for at in range(count)]
    for folder in set(FOLDERS.values()):
        (root / folder).mkdir(parents=True)
    for at, document in enumerate(data.documents(count)):
        node_type, other = types[at % len(types)], names[chooser.randrange(count)]
        replaced = f"supersedes: /{names[at - 7]}.md\n" if at % SUPERSEDING_EVERY == SUPERSEDING_EVERY - 1 else ""
        front = (
            f"type: {node_type}\ntitle: {document.title} {at}\ndescription: {document.body[:80]}\n"
            f"tags: [{', '.join(data.zipf_words(chooser, 2))}]\nstatus: draft\n"
            f"timestamp: 2026-{1 + at % 9:02}-{1 + at % 28:02}\n{replaced}"
            f"relations:\n  {chooser.choice(KEYS)}: /{other}.md\n"
        )
        text = f"---\n{front}---\n\n# {document.title}\n\n{document.body}\n\nSee [{at}](/{names[at - 1]}.md).\n"
        (root / f"{names[at]}.md").write_text(text, encoding="utf-8")


def _import(directory: Path, count: int) -> Imported:
    root = directory / "bundle"
    write(root, count)
    with _door(directory) as door:
        kept = _Kept(door)
        began = time.perf_counter()
        first = import_bundle(root, kept, Wishes())
        first_seconds = time.perf_counter() - began
        assert (first.created, first.problems) == (count, {}), first
        began = time.perf_counter()
        assert import_bundle(root, door, Wishes()).commands == 0
        again_seconds = time.perf_counter() - began
    floor_seconds = _parsed(root) + _inserted(directory, kept.told)
    return Imported(directory, count, first_seconds, again_seconds, floor_seconds)


@contextmanager
def _door(directory: Path) -> Iterator[EmbeddedDoor]:
    service = embedded_service(directory / "data", facts=embedded_facts(running=False))
    try:
        yield EmbeddedDoor(service, lambda: CONTEXT)
    finally:
        service.close_sync()


def _parsed(root: Path) -> float:
    began = time.perf_counter()
    for file in bundle.files(root):
        parse(file.id, file.data)
    return time.perf_counter() - began


class _Kept:
    """A door that keeps what it is told."""

    def __init__(self, door: EmbeddedDoor) -> None:
        self._door = door
        self.told: list[Told] = []

    def ask(self, op: str, input: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._door.ask(op, input)

    def tell(self, commands: Sequence[Told]) -> list[Outcome]:
        self.told += commands
        return self._door.tell(commands)


def _inserted(directory: Path, told: Sequence[Told]) -> float:
    """Seconds for the rows of all commands, in transactions of some hundred."""
    with closing(BareSqlite(directory)) as bare:
        register, *rest = told
        bare.prepare([_command(register, at=0)])
        source_id = next(iter(bare.recorder.execute("SELECT source_id FROM sources")))[0]
        bare.insert([_command(each, at=at, source_id=source_id) for at, each in enumerate(rest, start=1)])
        return bare.seconds


def _command(told: Told, *, at: int, source_id: str | None = None) -> Command:
    given = {**told.input, **({"source_id": source_id} if "source_id" in told.input else {})}
    document = {"v": 1, "request_id": f"req_{at}", "op": told.op, **CONTEXT, "idempotency_key": f"key_{at}"}
    return new_command(
        "local", validate(parse_shape(Envelope, {**document, "input": given})), history=0, clock_now=utc_now
    )


async def _measure_import(site: Site) -> Figure:
    found = await imported(site)
    measured, floor = found.files / found.first_seconds, found.files / found.floor_seconds
    return Figure(measured, floor, {"okf_import_files_per_s": measured, "okf_bare_files_per_s": floor})


async def _measure_again(site: Site) -> Figure:
    found = await imported(site)
    absolute = {"okf_reimport_seconds": found.again_seconds, "okf_import_seconds": found.first_seconds}
    return Figure(found.again_seconds, found.first_seconds, absolute)


async def _measure_search(site: Site) -> Figure:
    found = await imported(site)
    seconds = await asyncio.to_thread(_searched, found, site.plan.samples)
    return Figure(p50(seconds) * 1000, None, latencies_ms("okf_search", seconds))


def _searched(found: Imported, samples: int) -> list[float]:
    """Of searches for some words of one node each, half of them with neighbours, after a warm-up."""
    chooser = random.Random(114)
    bodies = [document.body.split() for document in data.documents(found.files)]
    seconds = []
    with _door(found.directory) as door:
        for at in range(samples + 1):
            words = chooser.sample(chooser.choice(bodies), chooser.randint(WORDS_MIN, WORDS_MAX))
            began = time.perf_counter()
            answer = door.ask("okf.search", {"query": " ".join(words), "expand": at % 2 == 0})
            seconds.append(time.perf_counter() - began)
            assert answer["count"] > 0, f"nothing has any of {words}"
    return seconds[1:]


IMPORT = Ratio(
    name="okf_import_files_per_s_over_bare_insert",
    measured_is="files/s of the first import of a bundle",
    floor_is="files/s of parsing them and inserting the rows bare",
    must=0.25,
    aim=0.5,
    measure=_measure_import,
    higher_is_better=True,
)
AGAIN = Ratio(
    name="okf_reimport_over_first_import",
    measured_is="an import of a bundle that did not change",
    floor_is="the first import of the same bundle",
    must=0.15,
    aim=0.05,
    measure=_measure_again,
)
SEARCH = Ratio(
    name="okf_search_10k_ms_p50",
    measured_is="one search of a bundle of 10 000 nodes, in ms",
    floor_is="none",
    must=25,
    aim=8,
    measure=_measure_search,
)
