"""A backup is readable without this software, by the commands of docs/backups.md."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mixed_mutations import LONG_TEXT

from .workshop import Workshop

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "backups.md"
RECIPE = re.compile(r"<!-- recipe -->\n\n```console\n(.*?)```", re.DOTALL)


def commands() -> list[str]:
    (recipe,) = RECIPE.findall(DOCUMENTATION.read_text())
    lines = [line.removeprefix("$ ") for line in recipe.splitlines() if line.startswith("$ ")]
    assert len(lines) > 5
    return lines


SHIMS = {
    "sqlite3": "import sqlite3; [print(*row, sep='|') for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2])]",
    "b3sum": "import blake3; print(blake3.blake3(open(sys.argv[-1], 'rb').read()).hexdigest())",
}
"""Commands that not every system has; the SQLite of the standard library is another one than this program's."""
ZSTD = "import zstandard; data = open(sys.argv[-1], 'rb').read(); " + (
    "open(sys.argv[-1].removesuffix('.zst'), 'wb').write(zstandard.ZstdDecompressor().decompress(data))"
)


@pytest.mark.proves("operations-21")
def test_the_documented_commands_read_a_backup(filled: Workshop, tmp_path: Path) -> None:
    made = filled.back_up()
    copy, programs = tmp_path / "copy", tmp_path / "programs"
    copy.mkdir()
    programs.mkdir()
    for name, code in (SHIMS if shutil.which("zstd") else {**SHIMS, "zstd": ZSTD}).items():
        (programs / name).write_text(f"#!{sys.executable}\nimport sys\n{code}\n")
        (programs / name).chmod(0o700)
    (blob,) = filled.blob_keys()
    for key in (*filled.backup_keys(), blob):
        name = "blob" if key == blob else key.rpartition("/")[2]
        (copy / name).write_bytes(filled.path(key).read_bytes())
    done = subprocess.run(
        ["sh", "-e", "-c", "\n".join(commands())],
        cwd=copy,
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    digest = blob.rpartition("/")[2]
    for told in (
        f"{made.checkpoint.stored_sha256}  checkpoint.db.zst",
        f"{made.manifest.stored_sha256}  manifest.jsonl.zst",
        f"{made.commit_seq}|{made.history}|{made.integrity}",
        "Celadon needs cone 10.",
        "Kiln firing 12|cone 6 at 21:52",
        f'{{"digest":"{digest}","size":{len(LONG_TEXT.encode())}}}',
        f"\n{digest}\n",
        LONG_TEXT.splitlines()[0],
    ):
        assert told in done.stdout
