"""A bundle of files into a running stack, and out of it: over HTTP, through the queue and the writer."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.deployment import Deployment
from e2e.test_cli_wrappers import result_of

pytestmark = pytest.mark.stack


def written(root: Path, count: int) -> dict[str, bytes]:
    """Nodes that each replace the one before, one of them too large to travel in a command, and one that is secret."""
    large = "word " * 20_000
    files = {
        f"concepts/n{at}.md": (
            f"---\ntype: Concept\ntitle: Node {at}\nsupersedes: /concepts/n{at - 1}.md\n---\n\n"
            f"word{at} {large * (at == 7)}\n"
        ).encode()
        for at in range(count)
    }
    for path, data in {**files, "concepts/key.md": b"---\ntype: Concept\nvisibility: secret\n---\nkey\n"}.items():
        at = root / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(data)
    return files


@pytest.mark.proves("okf-15")
@pytest.mark.proves("okf-106")
def test_a_bundle_goes_into_a_running_stack_and_comes_out_as_it_was(
    stack: Deployment, tenant: str, tmp_path: Path
) -> None:
    root = tmp_path / "bundle"
    files = written(root, 40)
    first = result_of(stack, tenant, "okf", "import", root)
    assert (first["created"], first["relations"], first["secrets"], first["problems"]) == (40, 39, 1, {})
    again = result_of(stack, tenant, "okf", "import", root)
    assert (again["unchanged"], again["commands"]) == (40, 0)
    (root / "concepts/n3.md").unlink()
    (root / "concepts/n5.md").write_bytes(files["concepts/n5.md"] + b"more\n")
    changed = result_of(stack, tenant, "okf", "import", root)
    assert (changed["created"], changed["revised"], changed["withdrawn"]) == (0, 1, 1)
    exported = result_of(stack, tenant, "okf", "export", tmp_path / "out")
    assert exported["file_count"] == 41  # and the index and the log
    out = {file.name: file.read_bytes() for file in (tmp_path / "out" / "concepts").iterdir()}
    assert out == {file.name: file.read_bytes() for file in (root / "concepts").iterdir() if file.name != "key.md"}
