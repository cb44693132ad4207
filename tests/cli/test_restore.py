"""`memoree restore` and `memoree backup restore`, as they are typed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run

Line = Callable[..., Run]


@pytest.fixture
def backup(inside: Line, tmp_path: Path) -> Path:
    """Of a store that went on since."""
    destination = tmp_path / "backup"
    inside("claim", "assert", "fact", "The kiln holds cone 6.").result  # noqa: B018 - it must succeed
    inside("backup", "create", str(destination)).result  # noqa: B018
    inside("claim", "assert", "fact", "The kiln holds cone 10.").result  # noqa: B018
    return destination


@pytest.mark.proves("operations-26")
def test_a_backup_takes_the_place_of_the_store_only_with_leave(inside: Line, backup: Path) -> None:
    error = inside("backup", "restore", str(backup)).refused("CONFIG_ERROR", 2)
    assert "--replace" in error["message"]

    restored = inside("backup", "restore", "backup", "--replace").result
    assert restored["asked"] == {"backup": str(backup)}, "a relative BACKUP is one of this directory"
    assert (restored["got"], restored["commit_seq"], restored["history"]) == ({"commit_seq": 1}, 3, 1)
    assert inside("doctor").result["last_commit_seq"] == 3
    assert inside("verify").result["ok"]


def test_what_is_no_backup_leaves_no_store_behind(inside: Line, tmp_path: Path) -> None:
    assert "is no backup" in inside("backup", "restore", str(tmp_path)).refused("CONFIG_ERROR", 2)["message"]
    assert not (tmp_path / "home").exists()


def test_a_data_directory_has_no_earlier_points_in_time(inside: Line) -> None:
    for line in (("--to-time", "2026-03-02T20:40:00Z"), ("--to-commit", "1"), ("--list",)):
        error = inside("restore", *line).refused("CONFIG_ERROR", 2)
        assert "memoree backup restore DIR" in error["message"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (("restore", "--tenant", "local"), "name one of --to-commit, --to-time and --list"),
        (
            ("restore", "--tenant", "local", "--list", "--to-commit", "1"),
            "name one of --to-commit, --to-time and --list",
        ),
        (("restore", "--tenant", "local", "--to-commit", "-1"), "--to-commit"),
        (("restore", "--tenant", "local", "--to-time", "yesterday"), "--to-time"),
        (("restore", "--tenant", "local", "--to-time", "2026-03-02T20:40:00"), "--to-time"),
        (("backup", "restore", "DIR", "--as", "other"), "name the --tenant"),
        (("backup", "restore", "DIR", "--from", "second"), "name the --tenant"),
    ],
)
def test_mistakes_in_a_line_are_told(line: tuple[str, ...], said: str, inside: Line) -> None:
    run = inside(*line)
    assert run.status == 2
    assert said in run.stderr
    assert run.stdout == b""


def test_a_deployment_that_is_not_described_is_told(inside: Line) -> None:
    error = inside("restore", "--tenant", "local", "--list").refused("CONFIG_ERROR", 2)
    assert "MEMOREE_BUCKET" in error["message"]


def test_a_store_that_does_not_answer_is_told(inside: Line, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = {
        "MEMOREE_BUCKET": "nowhere",
        "MEMOREE_ENDPOINT_URL": "http://127.0.0.1:9",
        "MEMOREE_ACCESS_KEY_ID": "key",
        "MEMOREE_SECRET_ACCESS_KEY": "secret",
        "MEMOREE_QUEUE_URL": f"sqlite://{tmp_path / 'queue.sqlite3'}",
        "MEMOREE_RUNTIME_DIR": str(tmp_path / "runtime"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    error = inside("restore", "--tenant", "local", "--list").refused("TRANSPORT_ERROR", 1)
    assert "object store" in error["message"]
