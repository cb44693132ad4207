"""Git repositories made for a test, with the real program."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Repository:
    """A repository with a working tree, on branch `main`. Commits are a minute apart, unless `at` says when all of
    them are made."""

    path: Path
    minutes: int = field(default=0)
    at: str | None = None

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        at = self.at or f"2026-03-02T20:{self.minutes % 60:02}:00+01:00"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.path),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "Ada Kiln",
            "GIT_AUTHOR_EMAIL": "ada@kiln.example",
            "GIT_COMMITTER_NAME": "Ada Kiln",
            "GIT_COMMITTER_EMAIL": "ada@kiln.example",
            "GIT_AUTHOR_DATE": at,
            "GIT_COMMITTER_DATE": at,
        }
        line = ["git", "-C", str(self.path), "-c", "commit.gpgsign=false", *arguments]
        return subprocess.run(line, check=True, capture_output=True, text=True, env=environment).stdout.strip()

    def commit(self, files: dict[str, bytes | str | None] | None = None, message: str = "a change") -> str:
        """Write the files, or remove them for `None`; the id of the commit."""
        for name, content in (files or {}).items():
            path = self.path / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.minutes += 1
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")
