"""Which ambient context a caller works in, resolved on the client (machine protocol §2.4).

The first source that is present decides: the session variable, the nearest marker file, the personal fallback of
the configuration file. A source that is present and wrong is an error, never a reason to look further: work must
not land in another project because of a typing mistake. Lower sources are not even read.
"""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import Field

from memoree import limits
from memoree.envelope import AmbientContext, ContextSource, WireModel, bounded, load_json, parse
from memoree.errors import Code, MemoreeError
from memoree.ids import new_id, new_ulid
from memoree.paths import open_regular_file

CONTEXT_VARIABLE = "MEMOREE_CONTEXT"
MARKER_NAME = ".memoree.toml"
PRECEDENCE: tuple[ContextSource, ...] = ("session", "marker", "personal")
SETTINGS_FILE_BYTES_MAX = 256 * limits.KIB
PROJECT_NAME_FALLBACK = "project"
TASK_ID_HEX_DIGITS = 20

SCHEMA_NUMBER = 1
_SchemaNumber = Annotated[int, Field(ge=SCHEMA_NUMBER, le=SCHEMA_NUMBER, alias="schema")]


class Marker(WireModel):
    """A `.memoree.toml`: the identity of a project, committed with it."""

    schema_number: _SchemaNumber = SCHEMA_NUMBER
    workspace_id: str
    project_id: str
    name: Annotated[str, bounded(limits.CONTEXT_ID_BYTES_MAX)]
    pins: list[str] = Field(default_factory=list)
    project_index: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None
    """Tables of old files. They are accepted and mean nothing: consent is never read from a repository."""


class PersonalFallback(WireModel):
    workspace_id: str
    project_id: str
    pins: list[str] = Field(default_factory=list)


class Config(WireModel):
    """`config.toml`. No member may widen a search: the horizon is part of each request."""

    schema_number: _SchemaNumber = SCHEMA_NUMBER
    personal: PersonalFallback | None = None
    personal_fallback: PersonalFallback | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """The context, where it came from, and the file it stands in (absent for the session variable)."""

    context: AmbientContext
    source: ContextSource
    path: Path | None = None

    def to_wire(self) -> dict[str, Any]:
        """The envelope's `context`: the ambient context and how it was found."""
        return {**wire_form(self.context), "resolved_from": self.source, "horizon": "ambient", "broadened": False}


def wire_form(context: AmbientContext) -> dict[str, Any]:
    return context.model_dump(exclude_none=True)


# --- resolution -----------------------------------------------------------------------------------------------


def resolve(config_file: Path, *, environ: Mapping[str, str] = os.environ, start: Path | None = None) -> Resolution:
    """The ambient context of a process whose working directory is `start` (the current one by default).

    Raises `CONFIG_ERROR` for a source that is present but wrong, `NO_AMBIENT_CONTEXT` when there is none.
    """
    session = environ.get(CONTEXT_VARIABLE, "")
    if session.strip():
        return Resolution(parse_session(session), "session")
    marker = nearest_marker(start or working_directory())
    if marker is not None:
        return Resolution(read_marker(marker), "marker", marker)
    personal = read_personal_fallback(config_file)
    if personal is not None:
        return Resolution(personal, "personal", config_file)
    raise MemoreeError(
        Code.NO_AMBIENT_CONTEXT,
        f"no context: {CONTEXT_VARIABLE} is not set, no directory from here up holds {MARKER_NAME}, "
        f"and {config_file} names no personal fallback",
        hint="run `memoree init` in the project, or start the agent with `memoree session exec`",
    )


def working_directory() -> Path:
    try:
        return Path.cwd().resolve()
    except OSError as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"the working directory cannot be read: {error}") from error


def parse_session(value: str) -> AmbientContext:
    """The value of `MEMOREE_CONTEXT`, a JSON object. Raises `CONFIG_ERROR`."""
    with _blamed_on(CONTEXT_VARIABLE):
        try:
            body = value.encode()
        except UnicodeEncodeError as error:  # bytes that are no UTF-8 reach us as lone surrogates
            raise MemoreeError(Code.CONFIG_ERROR, "is not valid UTF-8") from error
        return parse(AmbientContext, load_json(body))


def nearest_marker(start: Path) -> Path | None:
    """The marker of the closest ancestor that has one, in whatever state: a broken link blocks those above."""
    directory = start if start.is_dir() else start.parent
    for ancestor in (directory, *directory.parents):
        candidate = ancestor / MARKER_NAME
        if os.path.lexists(candidate):
            return candidate
    return None


def read_marker(path: Path) -> AmbientContext:
    """Raises `CONFIG_ERROR` when the file cannot be read or says anything but a marker of schema 1."""
    with _blamed_on(path):
        marker = parse(Marker, _read_toml(path))
        place = {"workspace_id": marker.workspace_id, "project_id": marker.project_id, "pins": marker.pins}
        return parse(AmbientContext, place)


def read_personal_fallback(config_file: Path) -> AmbientContext | None:
    """The fallback of the configuration file; a missing file has none. Raises `CONFIG_ERROR` for a wrong file."""
    if not os.path.lexists(config_file):
        return None
    with _blamed_on(config_file):
        config = parse(Config, _read_toml(config_file))
        if config.personal is not None and config.personal_fallback is not None:
            raise MemoreeError(Code.CONFIG_ERROR, "[personal] and [personal_fallback] are two names of one table")
        personal = config.personal or config.personal_fallback
        return None if personal is None else parse(AmbientContext, personal.model_dump())


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_read_small_file(path).decode())
    except tomllib.TOMLDecodeError as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"is not valid TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise MemoreeError(Code.CONFIG_ERROR, "is not valid UTF-8") from error
    except OSError as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"cannot be read: {error.strerror}") from error


def _read_small_file(path: Path) -> bytes:
    with open_regular_file(path) as file:
        body = file.read(SETTINGS_FILE_BYTES_MAX + 1)
    if len(body) > SETTINGS_FILE_BYTES_MAX:
        raise MemoreeError(Code.CONFIG_ERROR, f"is larger than {SETTINGS_FILE_BYTES_MAX} bytes")
    return body


@contextlib.contextmanager
def _blamed_on(source: Path | str) -> Iterator[None]:
    """Faults inside are faults of this source: `CONFIG_ERROR` with its name in front."""
    try:
        yield
    except MemoreeError as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"{source}: {error.message}") from error


# --- projects and tasks -----------------------------------------------------------------------------------------


def create_marker(directory: Path, *, name: str | None = None, workspace_id: str | None = None) -> Path:
    """Give a directory an identity, once. The file appears whole or not at all, and never replaces another.

    Raises `CONFIG_ERROR` when the directory is missing or has a marker, `INVALID_REQUEST` for bad names.
    """
    directory = directory.resolve()
    if not directory.is_dir():
        raise MemoreeError(Code.CONFIG_ERROR, f"{directory} is not a directory")
    fields = {
        "workspace_id": workspace_id if workspace_id is not None else new_id("wsp"),
        "project_id": new_id("prj"),
        "name": name if name is not None else directory.name or PROJECT_NAME_FALLBACK,
    }
    marker = parse(Marker, fields)
    parse(AmbientContext, {"workspace_id": marker.workspace_id, "project_id": marker.project_id})
    path = directory / MARKER_NAME
    _publish_new(path, _marker_toml(marker).encode())
    return path


def _marker_toml(marker: Marker) -> str:
    lines = [
        f"schema = {SCHEMA_NUMBER}",
        f"workspace_id = {_toml_string(marker.workspace_id)}",
        f"project_id = {_toml_string(marker.project_id)}",
        f"name = {_toml_string(marker.name)}",
        "pins = []",
    ]
    return "\n".join(lines) + "\n"


def _toml_string(text: str) -> str:
    """A TOML basic string: the escapes of JSON, and DEL, which TOML does not allow either."""
    return orjson.dumps(text).decode().replace("\x7f", "\\u007F")


def _publish_new(path: Path, body: bytes) -> None:
    """A hard link is the one way to publish a complete file that fails when the name is taken."""
    temporary = path.with_name(f"{path.name}.tmp-{new_ulid()}")
    try:
        with temporary.open("xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError as error:
        raise MemoreeError(
            Code.CONFIG_ERROR, f"{path} exists and is left as it is; `memoree context show` says what it names"
        ) from error
    except OSError as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"{path} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def task_context(context: AmbientContext, task_name: str) -> AmbientContext:
    """The context of a named task: the same name in the same project is always the same task (§5.1)."""
    from blake3 import blake3

    identity = f"{context.workspace_id}:{context.project_id}:{task_name}"
    digest = blake3(identity.encode()).hexdigest()[:TASK_ID_HEX_DIGITS]
    return context.model_copy(update={"task_id": f"tsk_{digest}"})
