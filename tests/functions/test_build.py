"""The zips are the same whoever builds them, for both architectures, and small enough."""

from __future__ import annotations

import struct
import subprocess
import zipfile
from pathlib import Path

import pytest
from emulated import ROOT

UNZIPPED_BYTES_MAX = 250 * 1024 * 1024
NAMES = ("api", "writer", "ingest", "backup", "verify", "gc")
MACHINES = {"x86_64": 62, "arm64": 183}
"""As the header of an ELF file names them."""


def build(out: Path, arch: str) -> Path:
    subprocess.run([ROOT / "scripts/build-functions", "--out", out, "--arch", arch], check=True)
    return out


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.proves("operations-68")
def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = build(tmp_path / "first", "x86_64"), build(tmp_path / "second", "x86_64")
    for zipped in sorted(first.glob("*.zip")):
        assert zipped.read_bytes() == (second / zipped.name).read_bytes(), zipped.name


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.proves("operations-68")
@pytest.mark.parametrize("arch", MACHINES)
def test_a_build_is_of_one_architecture_fits_and_holds_only_what_it_should(tmp_path: Path, arch: str) -> None:
    out = build(tmp_path, arch)
    layers = sum(_check(out / f"{layer}.zip", arch) for layer in ("dependencies", "litestream"))
    for name in NAMES:
        assert layers + _check(out / f"{name}.zip", arch) <= UNZIPPED_BYTES_MAX
        with zipfile.ZipFile(out / f"{name}.zip") as zipped:
            functions = {entry.split("/")[1] for entry in zipped.namelist() if entry.startswith("functions/")}
            assert functions - {"__init__.py", "__pycache__"} == {name}


def _check(path: Path, arch: str) -> int:
    """The size unzipped; after a look at every entry."""
    size = 0
    with zipfile.ZipFile(path) as zipped:
        for entry in zipped.infolist():
            content = zipped.read(entry)
            size += len(content)
            assert entry.date_time == (1980, 1, 1, 0, 0, 0), entry.filename
            assert str(ROOT).encode() not in content, f"{entry.filename} names the place it was built in"
            if content.startswith(b"\x7fELF"):
                assert struct.unpack_from("<H", content, 18)[0] == MACHINES[arch], entry.filename
            assert not entry.filename.startswith(("python/boto3/", "python/pip/", "python/uvicorn/")), entry.filename
    return size
