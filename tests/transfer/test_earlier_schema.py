"""An export that a program of an earlier schema wrote."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from memoree.assembly import embedded_service
from memoree.database import episodes
from memoree.database.episodes import Episode
from memoree.database.integrity import Sum
from memoree.database.schema import SCHEMA_VERSION
from memoree.transfer.archive import HEADER_NAME
from memoree.transfer.into_directory import import_directory
from test_embedded import call

from .test_archive import archive, members, repacked, source

__all__ = ["archive", "source"]

ADDED_TABLES = ("erasures", "episodes", "forget_previews", "quota", "okf_nodes", "okf_postings", "okf_edges")
ADDED_COLUMNS = ("erasure_row",)


def as_of_schema_3(found: dict[str, bytes]) -> dict[str, bytes]:
    """The same store without what later schemas added."""
    earlier = {}
    for name, data in found.items():
        if any(name.startswith(f"tables/{table}/") for table in ADDED_TABLES):
            continue
        if name.startswith("tables/"):
            rows = [orjson.loads(line) for line in data.splitlines()]
            kept = [{key: row[key] for key in row if key not in ADDED_COLUMNS} for row in rows]
            data = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in kept)
        earlier[name] = data
    header = orjson.loads(earlier[HEADER_NAME])
    header["schema_version"] = 3
    header["integrity"] = _without_episodes(bytes.fromhex(header["integrity"]), found).hex()
    header["tables"] = {name: count for name, count in header["tables"].items() if name not in ADDED_TABLES}
    return earlier | {HEADER_NAME: orjson.dumps(header)}


def _without_episodes(integrity: bytes, found: dict[str, bytes]) -> bytes:
    counted = Sum(integrity)
    for name, data in found.items():
        if name.startswith("tables/episodes/"):
            for line in data.splitlines():
                counted.remove(episodes.entry(Episode(**orjson.loads(line))))
    return counted.to_bytes()


@pytest.mark.proves("fault-50")
def test_it_becomes_a_whole_store_of_this_schema_and_its_texts_are_found(archive: bytes, tmp_path: Path) -> None:
    with (tmp_path / "export.tar").open("w+b") as file:
        file.write(repacked(as_of_schema_3(members(archive))))
        file.seek(0)
        import_directory(file, tmp_path / "data")
    service = embedded_service(tmp_path / "data")
    try:
        assert call(service, "verify", {})["result"]["schema_version"] == SCHEMA_VERSION
        assert call(service, "search", {"query": "celadon"})["result"]["hits"] != []
    finally:
        service.close_sync()
