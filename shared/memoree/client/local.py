"""The embedded profile as an endpoint: the store is opened in this process, for one request."""

from __future__ import annotations

import tempfile
from pathlib import Path

import apsw

from memoree.assembly import embedded_facts, embedded_service
from memoree.client import operations
from memoree.client.request import Outgoing
from memoree.data_directory import has_store
from memoree.errors import Code, MemoreeError
from memoree.paths import prepare_data_dir


class LocalEndpoint:
    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def exchange(self, request: Outgoing) -> bytes:
        held = _holds_something(self._data_dir)
        if not held and operations.needs_store(request.op):
            raise MemoreeError(
                Code.CONFIG_ERROR,
                f"there is no store in {self._data_dir}; MEMOREE_DATA_DIR or MEMOREE_HOME say where one is",
            )
        if held or operations.changes_store(request.op):
            prepare_data_dir(self._data_dir)
            return _exchange(self._data_dir, request)
        with tempfile.TemporaryDirectory(prefix="memoree-") as empty:  # a read leaves no store where none was
            return _exchange(Path(empty), request)


def _holds_something(data_dir: Path) -> bool:
    """Whether there is a store, or was one. Raises `CONFIG_ERROR` for a path that cannot be a directory."""
    try:
        return has_store(data_dir)
    except OSError as error:
        raise MemoreeError(Code.CONFIG_ERROR, f"the data directory {data_dir} cannot be used: {error}") from error


def _exchange(data_dir: Path, request: Outgoing) -> bytes:
    try:
        service = embedded_service(data_dir, facts=embedded_facts(running=False))
    except apsw.BusyError as error:
        raise MemoreeError(Code.TRANSPORT_ERROR, "the store is busy; send the request again") from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise MemoreeError(Code.INTEGRITY_ERROR, f"the database in {data_dir} is damaged: {error}") from error
    except (apsw.Error, OSError) as error:
        raise MemoreeError(Code.INTERNAL_ERROR, f"the store in {data_dir} cannot be opened: {error}") from error
    try:
        return service.call_bytes(request.body)
    finally:
        service.close_sync()
