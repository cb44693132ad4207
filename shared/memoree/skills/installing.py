"""Files on the user's side that teach a client: looked at first, all of them, and then written, each in one step."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from memoree.errors import invalid, shown
from memoree.skills import blocks, clients, configuration
from memoree.skills.blocks import MARKDOWN, BrokenBlock
from memoree.skills.clients import Client, Instructions, Places, Scope, Servers
from memoree.skills.configuration import Unusable

FILE_BYTES_MAX = 4 * 1024 * 1024

Action = Literal["created", "updated", "unchanged", "removed"]
Part = Literal["instructions", "server"]
Place = TypeVar("Place", Instructions, Servers)


@dataclass(frozen=True, slots=True)
class Edit:
    """What is to become of a file; `None` stands for no file. `path` is as it is told, `target` where the file is."""

    part: Part
    path: Path
    target: Path
    before: bytes | None
    after: bytes | None

    @property
    def action(self) -> Action:
        if self.before == self.after:
            return "unchanged"
        if self.before is None:
            return "created"
        return "removed" if self.after is None else "updated"


def installation(client: Client, scope: Scope, root: Path, options: Sequence[str], *, replace: bool) -> list[Edit]:
    """What installing changes below a project or a home directory. `options` go before the server's command; a server
    that is there already is only changed with `replace`. Raises `INVALID_REQUEST` for what cannot be written without
    harm to what somebody else wrote."""
    places = require_places(client, scope)
    edits = []
    if places.instructions is not None:
        edits.append(_edited("instructions", root, scope, places.instructions, _taught))
    if (servers := places.servers) is not None:
        entry = clients.entry(servers, options)

        def named(before: bytes | None, servers: Servers) -> bytes:
            return configuration.with_server(before or b"", servers, entry, replace=replace)

        edits.append(_edited("server", root, scope, servers, named))
    return edits


def removal(client: Client, scope: Scope, root: Path) -> list[Edit]:
    """What uninstalling changes: what `installation` wrote goes, and files with nothing else. Raises as it does."""
    places = require_places(client, scope)
    edits = []
    if places.instructions is not None:
        edits.append(_edited("instructions", root, scope, places.instructions, _untaught))
    if places.servers is not None:
        edits.append(_edited("server", root, scope, places.servers, _unnamed))
    return edits


def require_places(client: Client, scope: Scope) -> Places:
    """Raises `INVALID_REQUEST` for a client that keeps nothing in files of that scope."""
    found = clients.places(client, scope)
    if found is None:
        invalid(f"--scope: {client} has no files of a {scope} to be written; `memoree skill show` prints the text")
    return found


def apply(edits: Sequence[Edit], root: Path) -> None:
    """Raises `OSError`; each file is then as it was or as it was to become."""
    for edit in edits:
        if edit.action == "unchanged":
            continue
        if edit.after is None:
            edit.target.unlink()
            _drop_empty(edit.target.parent, root)
        else:
            _write(edit.target, edit.after)


# --- what a file becomes ----------------------------------------------------------------------------------------------


def _taught(before: bytes | None, place: Instructions) -> bytes:
    own = place.header.encode()
    if own and before is not None and before.strip() and blocks.find(before) is None:
        raise Unusable("memoree did not write it; move it away first")
    return blocks.put(before if before is not None and before.strip() else own, clients.text(), MARKDOWN)


def _untaught(before: bytes | None, place: Instructions) -> bytes | None:
    if before is None or blocks.find(before) is None:
        return before
    left = blocks.removed(before)
    is_ours = not left.removeprefix(blocks.BOM).strip() or left.strip() == place.header.encode().strip()
    return None if is_ours else left


def _unnamed(before: bytes | None, servers: Servers) -> bytes | None:
    if before is None:
        return None
    left = configuration.without_server(before, servers)
    return left if left.strip() or not before.strip() else None


def _edited(
    part: Part, root: Path, scope: Scope, place: Place, become: Callable[[bytes | None, Place], bytes | None]
) -> Edit:
    path = root / place.path
    target = _target(path, root, scope)
    before = _read(path, target)
    try:
        after = become(before, place)
    except (Unusable, BrokenBlock) as error:
        invalid(f"{path}: {error}; nothing was changed")
    return Edit(part, path, target, before, after)


def _target(path: Path, root: Path, scope: Scope) -> Path:
    """Where a file really is. A project may come from anybody: links in it lead to nothing outside."""
    try:
        target = path.resolve()
        within = root.resolve()
    except (OSError, RuntimeError) as error:
        invalid(f"{path} cannot be found: {error}")
    if scope == "project" and not target.is_relative_to(within):
        invalid(f"{path} leads out of {within}, to {shown(str(target))}; nothing was changed")
    return target


def _read(path: Path, target: Path) -> bytes | None:
    try:
        status = target.stat()
        if not stat.S_ISREG(status.st_mode):
            invalid(f"{path} is no file")
        if status.st_size > FILE_BYTES_MAX:
            invalid(f"{path} has more than {FILE_BYTES_MAX} bytes")
        return target.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        invalid(f"{path} cannot be read: {error.strerror}")


# --- writing ----------------------------------------------------------------------------------------------------------


def _write(target: Path, data: bytes) -> None:
    """Replace a file in one durable step; its mode stays."""
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with staged.open("xb") as file:
            if target.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(target)
    finally:
        staged.unlink(missing_ok=True)


def _drop_empty(directory: Path, root: Path) -> None:
    """Directories that nothing is left in, up to the root."""
    for each in _up_to(directory, root.resolve()):
        try:
            each.rmdir()
        except OSError:
            return


def _up_to(directory: Path, root: Path) -> Iterator[Path]:
    while directory != root and directory.is_relative_to(root):
        yield directory
        directory = directory.parent
