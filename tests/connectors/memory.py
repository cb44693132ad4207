"""A store in a data directory of a test's own, by its command line."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from e2e.deployment import environment, memoree

WORKSPACE = ("--workspace", "wsp_kiln", "--project", "prj_glaze")
CONTEXT = json.dumps({"workspace_id": "wsp_kiln", "project_id": "prj_glaze"})


@dataclass(frozen=True)
class Memory:
    home: Path

    @property
    def data_dir(self) -> Path:
        return self.home / "data"

    def variables(self) -> dict[str, str]:
        return {"MEMOREE_HOME": str(self.home), "MEMOREE_CONTEXT": CONTEXT}

    def environment(self) -> dict[str, str]:
        return environment(**self.variables())

    def run(self, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return memoree(*arguments, **self.variables(), **variables)

    def connect(self, *arguments: str | Path, status: int = 0, **variables: str) -> dict[str, Any]:
        """What `memoree connect` reports, having ended with `status`."""
        done = self.run("connect", *arguments, *WORKSPACE, **variables)
        assert done.returncode == status, done
        result: dict[str, Any] = json.loads(done.stdout)["result"]
        return result

    def recalled(self, question: str) -> list[tuple[str, str]]:
        """Title and cited text of what answers the question."""
        references = json.loads(self.run("recall", question).stdout)["result"]["artifact_refs"]
        return [(reference["title"], self.cited(reference["citation"])) for reference in references]

    def cited(self, citation: str) -> str:
        return str(json.loads(self.run("citation", "get", citation).stdout)["result"]["content"])

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        db = apsw.Connection(str(self.data_dir / "memoree.sqlite3"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return list(db.execute(sql))
        finally:
            db.close()

    def is_born(self) -> bool:
        """Whether there is a store with tables in it."""
        try:
            return bool(self.rows("SELECT 1 FROM sqlite_master WHERE name = 'source_items'"))
        except (apsw.CantOpenError, apsw.BusyError):
            return False

    def revisions(self) -> dict[str, int]:
        """Of every item that lives, how many revisions it has."""
        rows = self.rows(
            "SELECT i.external_id, count(*) FROM source_items i JOIN artifact_revisions r "
            "ON r.artifact_row = i.artifact_row WHERE i.state = 'live' GROUP BY 1"
        )
        return dict(rows)
