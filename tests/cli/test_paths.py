"""Where files are looked for; looking creates nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from memoree.errors import Code, MemoreeError
from memoree.paths import discover, open_regular_file, prepare_data_dir


def test_the_home_holds_everything(tmp_path: Path) -> None:
    paths = discover({"MEMOREE_HOME": str(tmp_path / "home"), "XDG_RUNTIME_DIR": str(tmp_path)})
    assert paths.config_file == tmp_path / "home" / "config.toml"
    assert paths.data_dir == tmp_path / "home" / "data"
    assert paths.socket == tmp_path / "home" / "run" / "memoree.sock"
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("variable", "attribute"),
    [
        ("MEMOREE_CONFIG", "config_file"),
        ("MEMOREE_DATA_DIR", "data_dir"),
        ("MEMOREE_RUNTIME_DIR", "runtime_dir"),
        ("MEMOREE_SOCKET", "socket"),
    ],
)
def test_each_path_has_an_override_and_empty_means_unset(tmp_path: Path, variable: str, attribute: str) -> None:
    home = {"MEMOREE_HOME": str(tmp_path)}
    assert getattr(discover(home | {variable: "/elsewhere/x"}), attribute) == Path("/elsewhere/x")
    assert discover(home | {variable: ""}) == discover(home)


def test_without_a_home_the_platform_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    paths = discover({"XDG_RUNTIME_DIR": str(tmp_path / "run")})
    assert paths.data_dir == tmp_path / "data" / "memoree"
    assert paths.config_file == tmp_path / "config" / "memoree" / "config.toml"
    assert paths.socket == tmp_path / "run" / "memoree" / "memoree.sock"
    assert discover({}).runtime_dir == tmp_path / "data" / "memoree" / "run"


def test_relative_paths_start_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert discover({"MEMOREE_HOME": "here/../there"}).data_dir == tmp_path / "there" / "data"


def test_a_data_directory_must_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(MemoreeError) as caught:
            prepare_data_dir(path)
        assert caught.value.code is Code.CONFIG_ERROR


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        open_regular_file(tmp_path)
    with pytest.raises(OSError, match="regular"):
        open_regular_file(Path("/dev/null"))
