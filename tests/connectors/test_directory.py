from __future__ import annotations

import os
import socket
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from connectors.support import Runs, content_of
from memoree.connectors import directory
from memoree.connectors.directory import DirectoryConnector
from memoree.connectors.names import Wanted, external_id_of
from memoree.errors import Code, MemoreeError
from memoree.limits import CONNECTOR_BATCH_ITEMS_MAX

NFC = unicodedata.normalize("NFC", "café.md")
NFD = unicodedata.normalize("NFD", "café.md")
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    made.mkdir()
    return made


def write(path: Path, content: bytes | str, *, age_seconds: float = 60) -> None:
    """A file that was last changed some time ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    at = path.stat().st_mtime_ns - int(age_seconds * 1e9)
    os.utime(path, ns=(at, at))


def test_every_text_file_is_delivered_under_its_path(root: Path, runs: Runs) -> None:
    write(root / "kiln.md", "# Kiln manual #\n\nCone 6.")
    write(root / "glazes" / "celadon.txt", "Celadon: 2% iron oxide")
    write(root / "photo.png", PNG)

    summary, outbox = runs.run(DirectoryConnector(root))

    assert [type(message).__name__ for message in outbox.messages] == ["Register", "Ingest", "Ingest", "Checkpoint"]
    assert (summary.delivered, summary.skipped_count) == (2, 0)
    manual, celadon = outbox.one("kiln.md"), outbox.one("glazes/celadon.txt")
    assert (manual.title, manual.media_type) == ("Kiln manual", "text/markdown; charset=utf-8")
    assert (celadon.title, celadon.media_type) == ("celadon.txt", "text/plain; charset=utf-8")
    assert content_of(celadon) == b"Celadon: 2% iron oxide"
    assert outbox.registered[0].locator == root.as_uri()


@pytest.mark.proves("operations-56")
def test_a_second_run_over_the_same_files_says_nothing(root: Path, runs: Runs) -> None:
    write(root / "kiln.md", "Cone 6.")
    runs.run(DirectoryConnector(root))

    summary, outbox = runs.run(DirectoryConnector(root))

    assert outbox.messages == []
    assert summary.unchanged == 1


def test_a_changed_file_is_a_new_revision_also_within_the_same_instant_and_size(root: Path, runs: Runs) -> None:
    path = root / "kiln.md"
    write(path, "Cone 6.", age_seconds=0)
    times = path.stat()
    _, before = runs.run(DirectoryConnector(root))
    path.write_bytes(b"Cone 7.")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    _, after = runs.run(DirectoryConnector(root))

    assert content_of(after.one("kiln.md")) == b"Cone 7."
    assert after.one("kiln.md").external_revision != before.one("kiln.md").external_revision


def test_a_touched_file_is_not_delivered_again(root: Path, runs: Runs) -> None:
    write(root / "kiln.md", "Cone 6.")
    runs.run(DirectoryConnector(root))
    os.utime(root / "kiln.md")

    _, outbox = runs.run(DirectoryConnector(root))

    assert outbox.messages == []


def test_an_unchanged_file_is_not_read_again(root: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "SETTLED_NANOSECONDS", 0)
    write(root / "kiln.md", "Cone 6.")
    runs.run(DirectoryConnector(root))

    def refuse(*_: Any) -> bytes:
        raise AssertionError("it was read")

    monkeypatch.setattr(directory, "_read", refuse)

    assert runs.run(DirectoryConnector(root))[0].unchanged == 1


def test_a_renamed_file_is_delivered_under_its_new_name_and_withdrawn_under_the_old_one(root: Path, runs: Runs) -> None:
    write(root / "kiln.md", "Cone 6.")
    write(root / "other.md", "Stays.")
    runs.run(DirectoryConnector(root))
    (root / "kiln.md").rename(root / "oven.md")

    _, outbox = runs.run(DirectoryConnector(root))

    assert (outbox.ids(), outbox.withdrawn) == (["oven.md"], ["kiln.md"])


def test_a_file_that_comes_back_as_it_was_is_delivered_again(root: Path, runs: Runs) -> None:
    write(root / "kiln.md", "Cone 6.")
    write(root / "other.md", "Stays.")
    _, first = runs.run(DirectoryConnector(root))
    (root / "kiln.md").unlink()
    runs.run(DirectoryConnector(root))
    write(root / "kiln.md", "Cone 6.")

    _, again = runs.run(DirectoryConnector(root))

    before, after = first.one("kiln.md"), again.one("kiln.md")
    assert after.external_revision == before.external_revision
    assert after.observed_at > before.observed_at  # another delivery, not a repeat of the first


# --- what must not be withdrawn ---------------------------------------------------------------------------------


@pytest.mark.proves("operations-57")
@pytest.mark.parametrize("loss", ["empty", "missing"])
def test_a_vanished_root_withdraws_nothing(root: Path, runs: Runs, loss: str) -> None:
    write(root / "kiln.md", "Cone 6.")
    runs.run(DirectoryConnector(root))
    (root / "kiln.md").unlink()
    if loss == "missing":
        root.rmdir()

    with pytest.raises(MemoreeError) as refused:
        runs.run(DirectoryConnector(root))

    assert refused.value.code is Code.CONFIG_ERROR
    assert runs.state(lambda state: state.sent("kiln.md")) is not None


@pytest.mark.proves("operations-57")
def test_the_source_says_that_its_root_vanished(root: Path, runs: Runs) -> None:
    from connectors.support import Outbox

    write(root / "kiln.md", "Cone 6.")
    runs.run(DirectoryConnector(root))
    (root / "kiln.md").unlink()
    outbox = Outbox()
    with pytest.raises(MemoreeError):
        runs.run(DirectoryConnector(root), outbox)

    (told,) = outbox.checkpoints
    assert told.health == "error"
    assert told.message is not None and "is it mounted?" in told.message


@pytest.mark.proves("operations-57")
def test_the_source_says_so_of_a_root_whose_name_is_not_utf_8_too(tmp_path: Path, runs: Runs) -> None:
    from connectors.support import Outbox

    root = tmp_path / "gl\udcfchen"
    write(root / "kiln.md", "Cone 6.")
    runs.run(DirectoryConnector(root))
    (root / "kiln.md").unlink()
    outbox = Outbox()
    with suppress(MemoreeError, ValueError):
        runs.run(DirectoryConnector(root), outbox)

    assert [(told.health, "gl\\udcfchen" in (told.message or "")) for told in outbox.checkpoints] == [("error", True)]


def test_an_empty_root_withdraws_everything_when_told_so(root: Path, runs: Runs) -> None:
    write(root / "kiln.md", "Cone 6.")
    runs.run(DirectoryConnector(root))
    (root / "kiln.md").unlink()

    _, outbox = runs.run(DirectoryConnector(root, allow_empty=True))

    assert outbox.withdrawn == ["kiln.md"]


@pytest.mark.proves("operations-57")
@pytest.mark.parametrize("name", ["glazes", "glazes 100%", "glazes \udcff"])
def test_files_below_a_directory_that_cannot_be_read_are_not_withdrawn(
    name: str, root: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root / "kiln.md", "Cone 6.")
    write(root / name / "celadon.md", "Celadon")
    write(root / name / "b\udcfcck 2%.md", "A name that is not UTF-8")
    write(root / "glazes.md", "Not below it")
    runs.run(DirectoryConnector(root))
    (root / "glazes.md").unlink()
    really_open = os.open

    def open_but_not_glazes(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if path == name:
            raise PermissionError(13, "Permission denied")  # what another user meets; root meets it nowhere
        return really_open(path, flags, *arguments, **options)

    monkeypatch.setattr(directory.os, "open", open_but_not_glazes)

    summary, outbox = runs.run(DirectoryConnector(root))

    assert outbox.withdrawn == ["glazes.md"]
    assert [skipped.where for skipped in summary.skipped] == [f"{external_id_of(name)}/"]


# --- what is left out -------------------------------------------------------------------------------------------


@pytest.mark.proves("operations-58")
@pytest.mark.proves("fault-21")
def test_a_path_that_leads_out_of_the_root_is_not_opened(
    root: Path, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "secret.md", "the password")
    write(tmp_path / "private" / "diary.md", "dear diary")
    write(root / "kiln.md", "Cone 6.")
    (root / "link.md").symlink_to(tmp_path / "secret.md")
    (root / "relative.md").symlink_to("../secret.md")
    (root / "dir").symlink_to(tmp_path / "private")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe.md")
    listening = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(root)
    listening.bind("socket.md")  # a socket's path is short

    summary, outbox = runs.run(DirectoryConnector(root))

    listening.close()
    assert outbox.ids() == ["kiln.md"]
    assert summary.skipped_count == 0


@pytest.mark.proves("operations-58")
@pytest.mark.proves("fault-21")
def test_a_file_that_becomes_a_link_after_it_was_listed_is_not_opened(
    root: Path, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "private" / "diary.md", "dear diary")
    write(root / "notes" / "diary.md", "public")
    really_below = directory._Walk._below

    def swapped(self: Any, state: Any, parent: int, name: str, path: str, *, depth: int) -> Any:
        (root / name / "diary.md").unlink()
        (root / name).rmdir()
        (root / name).symlink_to(tmp_path / "private")
        return really_below(self, state, parent, name, path, depth=depth)

    monkeypatch.setattr(directory._Walk, "_below", swapped)

    assert runs.run(DirectoryConnector(root))[1].ids() == []


def test_hidden_files_and_repositories_are_left_out(root: Path, runs: Runs) -> None:
    write(root / ".git" / "description.md", "a repository")
    write(root / ".hidden.md", "hidden")
    write(root / "kiln.md", "Cone 6.")

    assert runs.run(DirectoryConnector(root))[1].ids() == ["kiln.md"]


def test_patterns_say_what_is_wanted(root: Path, runs: Runs) -> None:
    for name in ("a.md", "b.CSV", "drafts/c.csv", "drafts/deep/d.csv", "e.csv"):
        write(root / name, name)

    wanted = Wanted(include=["*.csv"], exclude=["drafts/**", "e.*"])

    assert runs.run(DirectoryConnector(root, wanted))[1].ids() == ["b.CSV"]


def test_a_file_that_is_too_large_is_told_and_the_others_are_delivered(root: Path, runs: Runs) -> None:
    write(root / "large.md", b"x" * 101)
    write(root / "kiln.md", b"x" * 100)

    summary, outbox = runs.run(DirectoryConnector(root, bytes_max=100))

    assert outbox.ids() == ["kiln.md"]
    assert [(skipped.where, skipped.reason) for skipped in summary.skipped] == [
        ("large.md", "it has more than 100 bytes")
    ]
    assert outbox.checkpoints[0].health == "degraded"


# --- names and bytes --------------------------------------------------------------------------------------------


@pytest.mark.proves("fault-34")
def test_two_spellings_of_one_name_are_one_item(root: Path, runs: Runs) -> None:
    write(root / NFD, "decomposed")
    _, first = runs.run(DirectoryConnector(root))
    assert first.ids() == [NFC]
    assert content_of(first.one(NFC)) == b"decomposed"
    (root / NFD).unlink()
    write(root / NFC, "composed")

    _, second = runs.run(DirectoryConnector(root))

    assert (second.ids(), second.withdrawn) == ([NFC], [])


@pytest.mark.proves("fault-34")
def test_the_second_of_two_twins_in_one_directory_is_told_and_left_out(root: Path, runs: Runs) -> None:
    write(root / NFC, "composed")
    write(root / NFD, "decomposed")
    write(root / "\u212a.md", "Kelvin")  # a letter K in normal form C
    write(root / "ＡＢＣ.md", "full width")
    write(root / "ABC.md", "ASCII")

    summary, outbox = runs.run(DirectoryConnector(root))

    assert sorted(outbox.ids()) == sorted([NFC, "K.md", "ＡＢＣ.md", "ABC.md"])
    assert [skipped.where for skipped in summary.skipped] == [NFC]


@pytest.mark.proves("fault-35")
def test_names_and_content_of_any_bytes_are_delivered(root: Path, runs: Runs) -> None:
    (Path(os.fsdecode(os.fsencode(root) + b"/100%\xff.md"))).write_bytes(b"name of bytes")
    write(root / "100%.md", "\u202ereversed\u0000\ufffe\ufeff")
    write(root / "marks.md", "e" + "\u0301" * 500)

    summary, outbox = runs.run(DirectoryConnector(root))

    assert summary.skipped_count == 0
    assert sorted(outbox.ids()) == ["100%.md", "100%25%FF.md", "marks.md"]
    assert content_of(outbox.one("marks.md")) == ("e" + "\u0301" * 500).encode()  # content is never normalised


@pytest.mark.proves("fault-61")
@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (PNG, "application/octet-stream"),
        (b"\xff\xfe", "application/octet-stream"),
        ("kiln".encode("utf-16"), "application/octet-stream"),
        (b"caf\xe9", "application/octet-stream"),
        (b"", "text/plain; charset=utf-8"),
        (b"x", "text/plain; charset=utf-8"),
        (b"\xef\xbb\xbfline\r\n", "text/plain; charset=utf-8"),
    ],
)
def test_bytes_are_kept_and_called_what_they_are(root: Path, runs: Runs, content: bytes, media_type: str) -> None:
    write(root / "named.txt", content)

    _, outbox = runs.run(DirectoryConnector(root))

    item = outbox.one("named.txt")
    assert (content_of(item), item.media_type) == (content, media_type)


# --- files that change, processes that die ----------------------------------------------------------------------


def test_a_file_that_changes_while_it_is_read_is_read_again(
    root: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root / "kiln.md", b"old " * 10)
    really_read = directory._read
    changes = [b"newer", b"newest"]

    def read_while_written(descriptor: int, bytes_max: int) -> bytes:
        found = really_read(descriptor, bytes_max)
        if changes:
            (root / "kiln.md").write_bytes(changes.pop(0))
        return found

    monkeypatch.setattr(directory, "_read", read_while_written)

    _, outbox = runs.run(DirectoryConnector(root))

    assert content_of(outbox.one("kiln.md")) == b"newest"


def test_a_file_that_never_stands_still_is_left_for_the_next_run(
    root: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root / "kiln.md", "Cone 6.")
    runs.run(DirectoryConnector(root))
    write(root / "kiln.md", "Cone 7, unfinished")
    really_read = directory._read

    def read_while_written(descriptor: int, bytes_max: int) -> bytes:
        with (root / "kiln.md").open("ab") as file:
            file.write(b"!")
        return really_read(descriptor, bytes_max)

    monkeypatch.setattr(directory, "_read", read_while_written)

    summary, outbox = runs.run(DirectoryConnector(root))

    assert (outbox.ids(), outbox.withdrawn) == ([], [])
    assert summary.skipped[0].reason == "it is being written"


@pytest.mark.proves("operations-56")
def test_what_was_not_queued_is_never_remembered_as_sent(root: Path, runs: Runs) -> None:
    files = 2 * CONNECTOR_BATCH_ITEMS_MAX + 10
    for number in range(files):
        write(root / f"{number:04}.md", f"page {number}")

    outbox = runs.killed(DirectoryConnector(root), after=1)

    remembered = runs.state(lambda state: state.sent_count())
    assert remembered == CONNECTOR_BATCH_ITEMS_MAX
    assert len(outbox.delivered) == 2 * CONNECTOR_BATCH_ITEMS_MAX
    _, rest = runs.run(DirectoryConnector(root))
    assert set(outbox.ids()) | set(rest.ids()) == {f"{number:04}.md" for number in range(files)}


@pytest.mark.proves("operations-56")
def test_a_lost_state_costs_a_scan_and_delivers_the_same_revisions(root: Path, runs: Runs) -> None:
    write(root / "kiln.md", "# Kiln\n")
    _, first = runs.run(DirectoryConnector(root))
    runs.state_path.unlink()

    _, again = runs.run(DirectoryConnector(root))

    assert [m.model_copy(update={"observed_at": ""}) for m in again.delivered] == [
        m.model_copy(update={"observed_at": ""}) for m in first.delivered
    ]


def test_another_directory_under_the_same_source_is_refused(root: Path, runs: Runs, tmp_path: Path) -> None:
    write(root / "kiln.md", "Cone 6.")
    write(tmp_path / "elsewhere" / "other.md", "Something else")
    runs.run(DirectoryConnector(root))

    with pytest.raises(MemoreeError, match="--locator"):
        runs.run(DirectoryConnector(tmp_path / "elsewhere"))
