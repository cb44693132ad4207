"""A store in a directory that bundles are imported into, and what its tests ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from memoree.assembly import embedded_facts, embedded_service
from memoree.bundles.sync import Report, Wishes, import_bundle, stored_content
from memoree.client.batches import Command, EmbeddedDoor, Outcome
from memoree.embedded import EmbeddedService
from memoree.errors import MemoreeError

CONTEXT = {"context": {"workspace_id": "wsp_okf", "project_id": "prj_okf"}, "context_source": "explicit"}


class Store:
    """A service and the door that imports use."""

    def __init__(self, service: EmbeddedService) -> None:
        self.service = service
        self.door = EmbeddedDoor(service, lambda: CONTEXT)

    def imported(self, root: Path, **wishes: Any) -> Report:
        return import_bundle(root, self.door, Wishes(**wishes))

    def ask(self, op: str, **given: Any) -> Any:
        return self.door.ask(op, given)

    def tell(self, op: str, **given: Any) -> Any:
        """The acknowledgement of one mutation. Raises its refusal."""
        (outcome,) = self.door.tell([Command(op, given)])
        if isinstance(outcome, MemoreeError):
            raise outcome
        return outcome

    def files(self) -> dict[str, bytes]:
        return dict(stored_content(self.door))

    def listing(self) -> dict[str, dict[str, Any]]:
        return {file["path"]: file for file in self.ask("okf.files")["files"]}

    @property
    def source_id(self) -> str:
        return str(self.ask("okf.files")["bundle"]["source_id"])

    @property
    def commit_seq(self) -> int:
        return self.service.snapshot(lambda db: None)[1].commit_seq

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        def read(db: apsw.Connection) -> list[tuple[Any, ...]]:
            return list(db.execute(sql))

        return self.service.snapshot(read)[0]

    def relations(self) -> list[tuple[str, str, str]]:
        """(source, relation, target) by paths of nodes, ordered."""
        paths = {file["artifact_id"]: path.removesuffix(".md") for path, file in self.listing().items()}
        found = self.rows("SELECT source_id, relation, target_id FROM relations")
        return sorted((paths.get(source, source), kind, paths.get(target, target)) for source, kind, target in found)


@contextmanager
def opened(directory: Path) -> Iterator[Store]:
    service = embedded_service(directory, facts=embedded_facts(running=False))
    try:
        yield Store(service)
    finally:
        service.close_sync()


def write(root: Path, files: dict[str, str | bytes]) -> Path:
    """A directory of these files."""
    for path, data in files.items():
        at = root / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(data.encode() if isinstance(data, str) else data)
    return root


def node(title: str, text: str = "", **fields: str) -> str:
    """A concept, or what `type` says."""
    front = {"type": "Concept", "title": title, **fields}
    return "---\n" + "".join(f"{name}: {value}\n" for name, value in front.items()) + f"---\n\n# {title}\n\n{text}\n"


class Recorder:
    """A door that keeps what was told, and passes it on."""

    def __init__(self, store: Store) -> None:
        self._door = store.door
        self.commands: list[Command] = []

    def ask(self, op: str, input: Any) -> Any:
        return self._door.ask(op, input)

    def tell(self, commands: Any) -> list[Outcome]:
        self.commands += commands
        return self._door.tell(commands)
