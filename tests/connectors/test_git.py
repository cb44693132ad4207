from __future__ import annotations

import socket
import threading
import time
import unicodedata
from pathlib import Path

import pytest

from connectors.repository import Repository
from connectors.support import Outbox, Runs, content_of
from memoree.connectors import git_commands
from memoree.connectors.git import GitConnector
from memoree.connectors.git_commands import Git, git_dir_of
from memoree.connectors.names import Wanted
from memoree.errors import Code, MemoreeError
from memoree.ingest.message import InlineContent
from memoree.limits import CONNECTOR_BATCH_ITEMS_MAX


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "wiki")


@pytest.fixture
def connector(repository: Repository, tmp_path: Path) -> GitConnector:
    return GitConnector(str(repository.path), tmp_path / "state" / "mirror.git")


def told(outbox: Outbox) -> list[tuple[str, str, bytes | None]]:
    """Every delivery as (path, commit, content) and every withdrawal, in order."""
    withdrawn = [(message.external_id, "", None) for message in outbox.messages if message.type == "withdraw"]
    return [(m.external_id, m.external_revision, content_of(m)) for m in outbox.delivered] + withdrawn


@pytest.mark.proves("operations-59")
def test_every_commit_makes_revisions_of_the_files_it_changed(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    first = repository.commit({"kiln.md": "# Kiln\n", "photo.png": b"\x89PNG"}, "Begin")
    second = repository.commit({"kiln.md": "# Kiln\n\nCone 6.\n", "glazes/celadon.md": "Celadon"}, "Add the cone")

    _, outbox = runs.run(connector)

    assert told(outbox) == [
        ("kiln.md", first, b"# Kiln\n"),
        ("glazes/celadon.md", second, b"Celadon"),
        ("kiln.md", second, b"# Kiln\n\nCone 6.\n"),
    ]
    latest = outbox.delivered[-1]
    assert latest.title == "Kiln"
    assert latest.observed_at == "2026-03-02T19:02:00.000000000Z"
    assert latest.provenance == {
        "connector": "git",
        "path": "kiln.md",
        "branch": "main",
        "commit": second,
        "blob": repository.git("rev-parse", "HEAD:kiln.md"),
        "author": "Ada Kiln <ada@kiln.example>",
        "authored_at": "2026-03-02T20:02:00+01:00",
        "committed_at": "2026-03-02T20:02:00+01:00",
        "subject": "Add the cone",
    }
    assert outbox.checkpoints[-1].cursor == second


@pytest.mark.proves("operations-59")
def test_the_next_run_begins_behind_the_last_commit(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    repository.commit({"kiln.md": "one"})
    runs.run(connector)
    assert runs.run(connector)[1].messages == []
    third = repository.commit({"kiln.md": "two"})

    _, outbox = runs.run(connector)

    assert told(outbox) == [("kiln.md", third, b"two")]


def test_removed_and_renamed_files_are_withdrawn(repository: Repository, connector: GitConnector, runs: Runs) -> None:
    repository.commit({"kiln.md": "Cone 6.", "old.md": "old"})
    repository.git("mv", "old.md", "new.md")
    renamed = repository.commit(message="Rename")
    removed = repository.commit({"kiln.md": None, "new.md": "old"}, "Remove")

    _, outbox = runs.run(connector)

    reasons = {message.external_id: message.reason for message in outbox.messages if message.type == "withdraw"}
    assert reasons == {"old.md": f"removed by commit {renamed}", "kiln.md": f"removed by commit {removed}"}
    assert outbox.ids() == ["kiln.md", "old.md", "new.md"]


def test_a_file_that_was_never_delivered_is_not_withdrawn(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    repository.commit({"photo.png": b"\x89PNG", "kiln.md": "Cone 6."})
    repository.commit({"photo.png": None})

    assert runs.run(connector)[1].withdrawn == []


def test_a_file_that_becomes_a_link_is_withdrawn_and_links_are_never_followed(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    repository.commit({"kiln.md": "Cone 6.", "other.md": "Stays."})
    (repository.path / "kiln.md").unlink()
    (repository.path / "kiln.md").symlink_to("/etc/passwd")
    repository.commit()

    _, outbox = runs.run(connector)

    assert outbox.withdrawn == ["kiln.md"]
    assert [content_of(message) for message in outbox.delivered] == [b"Cone 6.", b"Stays."]


@pytest.mark.proves("operations-59")
def test_a_merge_is_one_change_of_the_main_line(repository: Repository, connector: GitConnector, runs: Runs) -> None:
    repository.commit({"kiln.md": "Cone 6."})
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit({"side.md": "draft"})
    repository.commit({"side.md": "final"})
    repository.git("checkout", "--quiet", "main")
    main = repository.commit({"kiln.md": "Cone 7."})
    repository.git("merge", "--quiet", "--no-ff", "-m", "Merge side", "side")
    merge = repository.git("rev-parse", "HEAD")

    _, outbox = runs.run(connector)

    assert told(outbox)[1:] == [("kiln.md", main, b"Cone 7."), ("side.md", merge, b"final")]


def test_binary_files_are_kept_byte_for_byte(repository: Repository, connector: GitConnector, runs: Runs) -> None:
    content = bytes(range(256)) * 3
    repository.commit({"blob.txt": content, "empty.txt": b""})

    _, outbox = runs.run(connector)

    assert content_of(outbox.one("blob.txt")) == content
    assert outbox.one("blob.txt").media_type == "application/octet-stream"
    assert content_of(outbox.one("empty.txt")) == b""


def test_names_with_line_ends_tabs_and_quotes_are_read_as_they_are(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    names = ["tab\there.md", "line\nend.md", 'quo"te.md', ":100644 x.md", "end\n.md", "café.md"]
    repository.commit(dict.fromkeys(names, "text"))

    assert sorted(runs.run(connector)[1].ids()) == sorted(names)


def test_a_large_file_is_told_and_the_content_after_it_is_right(
    repository: Repository, connector: GitConnector, runs: Runs, tmp_path: Path
) -> None:
    repository.commit({"a.md": "x" * 200_000, "b.md": "small"})

    summary, outbox = runs.run(GitConnector(str(repository.path), tmp_path / "mirror.git", bytes_max=1000))

    assert [(message.external_id, content_of(message)) for message in outbox.delivered] == [("b.md", b"small")]
    assert "more than 1000 bytes" in summary.skipped[0].reason


# --- what was skipped ---------------------------------------------------------------------------------------------


@pytest.mark.proves("operations-59")
def test_a_file_that_was_skipped_is_told_and_tried_by_every_run_until_it_is_delivered(
    repository: Repository, runs: Runs, tmp_path: Path
) -> None:
    small = GitConnector(str(repository.path), tmp_path / "mirror.git", bytes_max=10)
    repository.commit({"kiln.md": "Cone 6."})
    large = repository.commit({"kiln.md": "Cone 7, much longer"})
    told = [runs.run(small)[0] for _ in range(2)]
    repository.commit({"other.md": "short"})

    _, outbox = runs.run(GitConnector(str(repository.path), tmp_path / "mirror.git"))

    assert [[skipped.where for skipped in summary.skipped] for summary in told] == [[f"kiln.md in commit {large}"]] * 2
    assert [(m.external_id, content_of(m)) for m in outbox.delivered] == [
        ("kiln.md", b"Cone 7, much longer"),
        ("other.md", b"short"),
    ]
    assert outbox.one("kiln.md").external_revision == large
    assert runs.run(small)[0].skipped_count == 0


@pytest.mark.proves("operations-59")
def test_a_file_that_no_message_could_carry_is_tried_again_by_the_next_run(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    class Unaided(Outbox):
        async def content(self, tenant: str, data: bytes) -> InlineContent:
            raise MemoreeError(Code.CONTENT_TOO_LARGE, "it needs an api")

    first = repository.commit({"kiln.md": "Cone 6."})
    told = [runs.run(connector, Unaided())[0].skipped_count for _ in range(2)]

    assert told == [1, 1]
    assert runs.run(connector)[1].one("kiln.md").external_revision == first


@pytest.mark.proves("operations-59")
@pytest.mark.parametrize("rewritten", [False, True])
def test_nobody_is_reminded_of_a_skipped_file_that_was_removed(
    repository: Repository, connector: GitConnector, runs: Runs, tmp_path: Path, rewritten: bool
) -> None:
    kept = repository.commit({"kiln.md": "short", "large.md": "much longer"})
    repository.commit({"kiln.md": "shorter"})
    small = GitConnector(str(repository.path), tmp_path / "mirror.git", bytes_max=10)
    assert runs.run(small)[0].skipped_count == 1
    if rewritten:
        repository.git("reset", "--quiet", "--hard", kept)
    repository.commit({"large.md": None})

    runs.run(small)
    summary, outbox = runs.run(connector)

    assert (summary.skipped_count, outbox.delivered, outbox.withdrawn) == (0, [], [])


# --- spellings of one name ----------------------------------------------------------------------------------------

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "café.md") for form in ("NFC", "NFD"))


@pytest.mark.proves("operations-59")
@pytest.mark.parametrize(("old", "new"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
def test_a_file_whose_name_is_spelled_otherwise_is_not_withdrawn(
    repository: Repository, connector: GitConnector, runs: Runs, old: str, new: str
) -> None:
    repository.commit({old: "au lait"})
    renamed = repository.commit({old: None, new: "noir"})

    summary, outbox = runs.run(connector)

    assert (outbox.withdrawn, summary.skipped_count) == ([], 0)
    assert told(outbox)[1:] == [(COMPOSED, renamed, b"noir")]


@pytest.mark.proves("operations-59")
def test_of_twins_the_first_is_delivered_once_and_the_other_when_the_first_is_gone(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    both = repository.commit({COMPOSED: "second", DECOMPOSED: "first"})
    summary, first = runs.run(connector)
    assert (told(first), summary.skipped_count) == ([(COMPOSED, both, b"first")], 1)
    repository.commit({COMPOSED: "second, changed"})
    summary, other = runs.run(connector)
    assert (told(other), summary.skipped[0].where.split()[0]) == ([], COMPOSED)
    left = repository.commit({DECOMPOSED: None})

    summary, outbox = runs.run(connector)

    assert told(outbox) == [(COMPOSED, left, b"second, changed")]
    assert runs.run(connector)[0].skipped_count == 0
    removed = repository.commit({COMPOSED: None})
    assert [m.reason for m in runs.run(connector)[1].messages if m.type == "withdraw"] == [
        f"removed by commit {removed}"
    ]


@pytest.mark.proves("operations-59")
def test_a_twin_that_comes_first_takes_the_place_of_the_one_that_was_delivered(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    repository.commit({COMPOSED: "alone"})
    runs.run(connector)
    both = repository.commit({DECOMPOSED: "first"})

    summary, outbox = runs.run(connector)

    assert (told(outbox), summary.skipped_count) == ([(COMPOSED, both, b"first")], 1)


# --- a history that is no longer the same -----------------------------------------------------------------------


@pytest.mark.proves("operations-59")
def test_a_rewritten_branch_is_noticed_and_made_equal(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    base = repository.commit({"kiln.md": "Cone 6.", "same.md": "same"})
    repository.commit({"kiln.md": "Cone 7.", "gone.md": "dropped by the rewrite"})
    runs.run(connector)
    repository.git("reset", "--quiet", "--hard", base)
    rewritten = repository.commit({"kiln.md": "Cone 8."})

    _, outbox = runs.run(connector)

    assert told(outbox) == [("kiln.md", rewritten, b"Cone 8."), ("gone.md", "", None)]
    assert outbox.checkpoints[-1].cursor == rewritten


@pytest.mark.proves("operations-59")
def test_commits_that_leave_the_branch_and_come_back_are_delivered_again(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    base = repository.commit({"kiln.md": "Cone 6."})
    later = repository.commit({"kiln.md": "Cone 7."})
    _, before = runs.run(connector)
    repository.git("reset", "--quiet", "--hard", base)
    _, back = runs.run(connector)
    repository.git("reset", "--quiet", "--hard", later)

    _, again = runs.run(connector)

    assert told(back) == [("kiln.md", base, b"Cone 6.")]
    assert told(again) == [("kiln.md", later, b"Cone 7.")]
    instants = [outbox.delivered[-1].observed_at for outbox in (before, back, again)]
    assert instants[0] < instants[1] <= instants[2]  # none of them is a repeat of an earlier delivery


@pytest.mark.proves("operations-59")
def test_a_merge_that_makes_our_commit_a_side_line_still_ends_in_the_same_tree(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    """The main line of the new tip does not pass through what was delivered last, which it contains all the same."""
    base = repository.commit({"kiln.md": "Cone 6.", "glaze.md": "ash"})
    ours = repository.commit({"glaze.md": "celadon"})
    runs.run(connector)
    repository.git("checkout", "--quiet", "-b", "theirs", base)
    repository.commit({"kiln.md": "Cone 8."})
    repository.git("merge", "--quiet", "--no-ff", "--no-commit", "-s", "ours", ours)  # and reverts what we delivered
    repository.git("commit", "--quiet", "-m", "Merge main away")
    repository.git("branch", "--force", "main", "theirs")

    _, outbox = runs.run(connector)

    assert {path: content for path, _, content in told(outbox)} == {"kiln.md": b"Cone 8.", "glaze.md": b"ash"}


@pytest.mark.proves("operations-59")
def test_dates_that_go_backwards_never_make_a_later_commit_the_earlier_one(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    repository.minutes = 30
    repository.commit({"kiln.md": "one"})
    repository.minutes = 10
    repository.commit({"kiln.md": "two"})
    _, outbox = runs.run(connector)
    repository.minutes = 5
    repository.commit({"kiln.md": "three"})
    _, later = runs.run(connector)

    instants = [message.observed_at for message in outbox.delivered + later.delivered]
    assert instants == [
        "2026-03-02T19:31:00.000000000Z",
        "2026-03-02T19:31:00.000001000Z",
        "2026-03-02T19:31:00.000002000Z",
    ]


@pytest.mark.proves("operations-59")
@pytest.mark.parametrize("at", ["2026-03-02T20:00:00+01:00", "2099-01-01T00:00:00Z", "@253402300799 +0000"])
def test_a_file_that_is_deleted_restored_and_deleted_again_is_withdrawn_twice(
    repository: Repository, connector: GitConnector, runs: Runs, at: str
) -> None:
    """Two withdrawals of one instant are one delivery on the other side, whose reasons contradict each other."""
    repository.at = at
    for content in ("Cone 6.", None, "Cone 6.", None):
        repository.commit({"kiln.md": content, "other.md": str(content)})

    _, outbox = runs.run(connector)

    told = [message for message in outbox.messages if message.type in ("ingest", "withdraw")]
    mine = [message.observed_at for message in told if message.external_id == "kiln.md"]
    assert outbox.withdrawn == ["kiln.md", "kiln.md"]
    assert mine == sorted(set(mine))
    assert runs.state(lambda state: state.sent("kiln.md")) is None


def test_without_history_a_first_run_begins_with_the_tree(repository: Repository, runs: Runs, tmp_path: Path) -> None:
    repository.commit({"kiln.md": "one"})
    tip = repository.commit({"kiln.md": "two"})
    connector = GitConnector(str(repository.path), tmp_path / "mirror.git", history=False)

    assert told(runs.run(connector)[1]) == [("kiln.md", tip, b"two")]
    third = repository.commit({"kiln.md": "three"})
    assert told(runs.run(connector)[1]) == [("kiln.md", third, b"three")]


# --- restarts, and where a repository is ------------------------------------------------------------------------


@pytest.mark.proves("operations-56")
def test_a_killed_run_is_repeated_message_by_message(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    for number in range(3):
        repository.commit({f"{number}-{page}.md": f"{number}" for page in range(CONNECTOR_BATCH_ITEMS_MAX // 2 - 5)})

    killed = runs.killed(connector, after=0)
    _, rest = runs.run(connector)

    assert killed.delivered
    repeated = {(m.external_id, m.external_revision, m.observed_at) for m in killed.delivered}
    again = {(m.external_id, m.external_revision, m.observed_at) for m in rest.delivered}
    assert repeated <= again  # what was queued and not remembered is the very same delivery
    assert len(again) == 3 * (CONNECTOR_BATCH_ITEMS_MAX // 2 - 5)


def test_a_repository_behind_a_url_is_mirrored_and_followed(repository: Repository, runs: Runs, tmp_path: Path) -> None:
    first = repository.commit({"kiln.md": "one"})
    connector = GitConnector(repository.path.as_uri(), tmp_path / "state" / "mirror.git")
    assert told(runs.run(connector)[1]) == [("kiln.md", first, b"one")]
    repository.git("commit", "--quiet", "--amend", "-m", "rewritten")
    second = repository.commit({"kiln.md": "two"})

    _, outbox = runs.run(connector)

    assert told(outbox) == [("kiln.md", second, b"two")]
    assert outbox.registered[0].locator == repository.path.as_uri()


def test_the_branch_is_that_of_the_first_run_whatever_is_checked_out_later(
    repository: Repository, connector: GitConnector, runs: Runs
) -> None:
    repository.commit({"kiln.md": "main"})
    runs.run(connector)
    repository.git("checkout", "--quiet", "-b", "experiment")
    repository.commit({"kiln.md": "experiment"})

    assert runs.run(connector)[1].messages == []


@pytest.mark.proves("operations-59")
@pytest.mark.parametrize("before", ["ada:secret@", "ada:p@ss@", "to@ken@", "@"])
def test_passwords_are_no_part_of_a_locator(tmp_path: Path, before: str) -> None:
    connector = GitConnector(f"https://{before}git.example/a@b.git", tmp_path)

    assert connector.locator == "https://git.example/a@b.git"


@pytest.mark.proves("operations-59")
@pytest.mark.parametrize("before", ["ada:secret", "ada:se%63ret"])
def test_passwords_are_no_part_of_what_is_told(runs: Runs, tmp_path: Path, before: str) -> None:
    connector = GitConnector(f"git://{before}@nowhere.invalid/wiki.git", tmp_path / "mirror.git", "main")

    with pytest.raises(MemoreeError) as refused:
        runs.run(connector)

    assert "nowhere.invalid" in refused.value.message
    assert "ada" not in refused.value.message and "secret" not in refused.value.message


@pytest.mark.proves("operations-59")
def test_a_server_that_falls_silent_is_given_up(runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_commands, "SILENCE_SECONDS_MAX", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up_later() -> None:
            connection, _ = server.accept()
            with connection:
                time.sleep(10)

        threading.Thread(target=hang_up_later, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/wiki.git"
        with pytest.raises(MemoreeError) as refused:
            runs.run(GitConnector(url, tmp_path / "mirror.git", "main"))

    assert refused.value.code is Code.CONFIG_ERROR
    assert "too slow" in refused.value.message


@pytest.mark.proves("operations-59")
def test_a_repository_with_much_to_complain_about_is_read(repository: Repository) -> None:
    commit_id = repository.commit({"kiln.md": "one"})
    missing = "".join(f"/no/such/objects/{number}\n" for number in range(2000))  # a line on standard error for each
    (repository.path / ".git" / "objects" / "info" / "alternates").write_text(missing)
    found: list[bytes] = []

    def read() -> None:
        with Git(git_dir_of(repository.path)).reading("rev-list", "HEAD") as output:
            found.append(output.read())

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(20)

    assert found == [f"{commit_id}\n".encode()]


@pytest.mark.parametrize("branch", ["--output=/tmp/x", "no-such-branch", "../../HEAD"])
def test_a_branch_that_is_none_is_refused(repository: Repository, runs: Runs, tmp_path: Path, branch: str) -> None:
    repository.commit({"kiln.md": "one"})

    with pytest.raises(MemoreeError) as refused:
        runs.run(GitConnector(str(repository.path), tmp_path / "mirror.git", branch))

    assert refused.value.code is Code.CONFIG_ERROR


@pytest.mark.proves("operations-58")
@pytest.mark.proves("fault-21")
@pytest.mark.parametrize("repository_name", ["ext::touch touched", "--upload-pack=touch touched", "/no/such/path"])
def test_a_repository_that_is_a_command_is_not_run(
    runs: Runs, tmp_path: Path, repository_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(MemoreeError) as refused:
        runs.run(GitConnector(repository_name, tmp_path / "state" / "mirror.git", "main"))

    assert refused.value.code is Code.CONFIG_ERROR
    assert not list(tmp_path.rglob("touched"))


def test_patterns_hold_in_repositories_too(repository: Repository, runs: Runs, tmp_path: Path) -> None:
    repository.commit({"docs/kiln.md": "one", "src/main.md": "two", "docs/.draft.md": "hidden"})
    connector = GitConnector(str(repository.path), tmp_path / "mirror.git", wanted=Wanted(include=["docs/**"]))

    assert runs.run(connector)[1].ids() == ["docs/kiln.md"]
