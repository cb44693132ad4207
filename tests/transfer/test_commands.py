"""`memoree export` and `memoree import` as their users run them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.deployment import PROGRAM, environment, memoree
from memoree.assembly import embedded_service
from test_embedded import call

MEMORY_BYTES_MAX = 256 * 1024 * 1024
LARGE_FILES, LARGE_FILE_BYTES = 270, 8_000_000
MEASURED = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, file=sys.stderr)
sys.exit(status)
"""


def remember(data_dir: Path, statement: str) -> None:
    done = memoree(
        "claim",
        "assert",
        "fact",
        statement,
        MEMOREE_DATA_DIR=str(data_dir),
        MEMOREE_CONTEXT='{"workspace_id":"wsp_a","project_id":"prj_a"}',
    )
    assert done.returncode == 0, done


def test_a_store_goes_through_a_file_to_another_directory(tmp_path: Path) -> None:
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "store.tar"
    remember(old, "The kiln stands in the yard.")

    exported = memoree("export", file, MEMOREE_DATA_DIR=str(old))
    imported = memoree("import", file, MEMOREE_DATA_DIR=str(new))

    assert (exported.returncode, imported.returncode) == (0, 0), (exported, imported)
    told = json.loads(exported.stdout)["result"]
    assert told["size_bytes"] == file.stat().st_size
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(imported.stdout)["result"] == {name: told[name] for name in ("commit_seq", "rows", "blobs")}
    again = memoree("export", tmp_path / "again.tar", MEMOREE_DATA_DIR=str(new))
    assert again.returncode == 0
    assert (tmp_path / "again.tar").read_bytes() == file.read_bytes()


def test_a_store_goes_through_a_pipe(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    remember(old, "The kiln stands in the yard.")
    with subprocess.Popen(
        [PROGRAM, "export", "-"], stdout=subprocess.PIPE, env=environment(MEMOREE_DATA_DIR=str(old)), cwd="/"
    ) as exporting:
        done = subprocess.run(
            [PROGRAM, "import", "-"],
            stdin=exporting.stdout,
            capture_output=True,
            env=environment(MEMOREE_DATA_DIR=str(new)),
            cwd="/",
            check=False,
        )
    assert (exporting.returncode, done.returncode) == (0, 0), done


def test_what_is_there_is_never_replaced(tmp_path: Path) -> None:
    old, file = tmp_path / "old", tmp_path / "store.tar"
    remember(old, "The kiln stands in the yard.")
    file.write_bytes(b"mine")
    refused = memoree("export", file, MEMOREE_DATA_DIR=str(old))
    assert json.loads(refused.stdout)["error"]["code"] == "INVALID_REQUEST"
    assert file.read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old", "store.tar"]


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.fault_class(54)
@pytest.mark.proves("operations-74")
def test_two_gigabytes_move_in_bounded_memory(tmp_path: Path) -> None:
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "store.tar"
    service = embedded_service(old)
    for number in range(LARGE_FILES):
        data = base64.b64encode(f"{number}".encode().ljust(LARGE_FILE_BYTES, b".")).decode()
        film: dict[str, object] = {"kind": "film", "title": f"film {number}", "media_type": "application/octet-stream"}
        assert call(service, "artifact.put", {**film, "content": {"type": "base64", "data": data}}, key=str(number))[
            "ok"
        ]
    service.close_sync()
    for arguments, data_dir in ((["export", str(file)], old), (["import", str(file)], new)):
        measured = subprocess.run(
            [sys.executable, "-c", MEASURED, str(PROGRAM), *arguments],
            capture_output=True,
            text=True,
            env=environment(MEMOREE_DATA_DIR=str(data_dir)),
            check=False,
        )
        assert measured.returncode == 0, measured
        assert int(measured.stderr.split()[-1]) < MEMORY_BYTES_MAX, arguments
    assert file.stat().st_size > LARGE_FILES * LARGE_FILE_BYTES
