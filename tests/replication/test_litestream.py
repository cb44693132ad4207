"""The real Litestream child, its control socket, its restores, and the launcher that ends with its owner."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import orjson
import pytest

from memoree.replication import launcher, litestream, ltx
from memoree.replication.control_socket import ControlAnswer
from memoree.replication.litestream import (
    Credentials,
    Litestream,
    LitestreamError,
    LitestreamGone,
    LitestreamSettings,
    NotRestorable,
    ReplicaTarget,
    SyncAmbiguous,
    Synced,
    restore,
)

from .conftest import (
    QUICK,
    Bucket,
    Database,
    directory_files,
    notes_in,
    process_exists,
    wait_until,
    with_litestream,
)

GONE_SECONDS_MAX = 1.0
COMPACTING = LitestreamSettings(
    sync_interval_seconds=0.1,
    l0_retention_seconds=1,
    l0_retention_check_seconds=0.2,
    level_seconds=(0.5, 1.5),
)


def entries(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir()]


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def child_of(process: Litestream) -> int:
    assert process.pid is not None
    (child,) = children_of(process.pid)
    return child


class TestSync:
    def test_after_a_sync_the_replica_holds_every_commit(
        self, database: Database, target: ReplicaTarget, tmp_path: Path
    ) -> None:
        async def body(process: Litestream) -> None:
            first = await process.sync()
            database.commit()
            second = await process.sync()
            assert first == Synced(1, 1)
            assert second == Synced(2, 2)
            await restore(target, second.txid, tmp_path / "out.db")

        with_litestream(database, target, body)
        assert notes_in(tmp_path / "out.db") == 1

    def test_a_sync_without_changes_repeats_the_position(self, database: Database, target: ReplicaTarget) -> None:
        async def body(process: Litestream) -> None:
            database.commit()
            assert await process.sync() == await process.sync()

        with_litestream(database, target, body)

    def test_an_unregistered_database_is_gone_until_a_restart(self, database: Database, target: ReplicaTarget) -> None:
        async def body(process: Litestream) -> None:
            await process.sync()
            socket = httpx.AsyncHTTPTransport(uds=str(database.path.with_name("litestream.sock")))
            async with httpx.AsyncClient(transport=socket, base_url="http://litestream") as control:
                await control.post("/unregister", json={"path": str(database.path)})
            with pytest.raises(LitestreamGone, match="does not know the database"):
                await process.sync()
            database.commit()
            await process.restart()
            assert (await process.sync()).txid >= 2

        with_litestream(database, target, body)

    def test_a_killed_child_is_gone_and_a_restart_loses_nothing(
        self, database: Database, target: ReplicaTarget, tmp_path: Path
    ) -> None:
        async def body(process: Litestream) -> None:
            await process.sync()
            for _ in range(3):
                database.commit()
                os.kill(child_of(process), signal.SIGKILL)
                database.commit()
                await until(lambda: not process.is_alive)
                with pytest.raises(LitestreamGone):
                    await process.sync()
                await process.restart()
                await process.sync()
            synced = await process.sync()
            await restore(target, synced.txid, tmp_path / "out.db")

        with_litestream(database, target, body)
        assert notes_in(tmp_path / "out.db") == database.notes == 6

    def test_a_killed_launcher_takes_the_child_with_it(self, database: Database, target: ReplicaTarget) -> None:
        async def body(process: Litestream) -> None:
            child = child_of(process)
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            wait_until(lambda: not process_exists(child), GONE_SECONDS_MAX)
            with pytest.raises(LitestreamGone):
                await process.sync()

        with_litestream(database, target, body)

    def test_a_child_that_does_not_answer_leaves_the_commit_ambiguous(
        self, database: Database, target: ReplicaTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(litestream, "ANSWER_GRACE_SECONDS", 0.0)

        async def body(process: Litestream) -> None:
            await process.sync()
            database.commit()
            os.kill(child_of(process), signal.SIGSTOP)
            with pytest.raises(SyncAmbiguous, match="no answer"):
                await process.sync(timeout_seconds=1)
            os.kill(child_of(process), signal.SIGCONT)
            assert (await process.sync()).txid == 2

        with_litestream(database, target, body)

    def test_a_child_that_dies_while_it_is_asked_leaves_the_commit_ambiguous(
        self, database: Database, target: ReplicaTarget
    ) -> None:
        async def body(process: Litestream) -> None:
            await process.sync()
            database.commit()
            child = child_of(process)
            os.kill(child, signal.SIGSTOP)
            asking = asyncio.create_task(process.sync())
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.1, os.kill, child, signal.SIGKILL)
            with pytest.raises(SyncAmbiguous, match="no answer"):
                await asking
            await process.restart()
            assert (await process.sync()).txid >= 2

        with_litestream(database, target, body)

    def test_an_unreachable_store_leaves_the_commit_ambiguous(self, database: Database) -> None:
        nowhere = ReplicaTarget("s3://bucket/prefix", "http://127.0.0.1:1", credentials=Credentials("a", "b"))

        async def body(process: Litestream) -> None:
            database.commit()
            with pytest.raises(SyncAmbiguous, match="/sync answered 5"):
                await process.sync(timeout_seconds=1)
            assert process.is_alive

        with_litestream(database, nowhere, body)

    @pytest.mark.parametrize(
        "answer",
        [
            {"status": "synced", "txid": 5, "replicated_txid": 4},
            {"status": "synced_local", "txid": 5, "replicated_txid": 5},
            {"status": "no_change", "txid": 0, "replicated_txid": 0},
            {"status": "synced"},
            ["synced"],
        ],
    )
    def test_an_answer_that_proves_nothing_is_ambiguous(self, answer: object) -> None:
        with pytest.raises(SyncAmbiguous):
            litestream._read_sync(ControlAnswer(200, orjson.dumps(answer)))


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition)


class TestLife:
    def test_a_clean_stop_uploads_what_was_not_synced(
        self, database: Database, target: ReplicaTarget, replica_directory: Path, tmp_path: Path
    ) -> None:
        slow = LitestreamSettings(sync_interval_seconds=3600)

        async def body(process: Litestream) -> None:
            await process.sync()
            database.commit()
            assert await process.stop()
            assert not process.is_alive
            last = ltx.restorable_boundaries(directory_files(replica_directory))[-1]
            await restore(target, last, tmp_path / "out.db")

        with_litestream(database, target, body, slow)
        assert notes_in(tmp_path / "out.db") == 1

    def test_kill_leaves_no_process(self, database: Database, target: ReplicaTarget) -> None:
        async def body(process: Litestream) -> None:
            child = child_of(process)
            await process.kill()
            wait_until(lambda: not process_exists(child), GONE_SECONDS_MAX)
            assert process.pid is None
            with pytest.raises(LitestreamGone, match="not running"):
                await process.sync()
            await process.kill()

        with_litestream(database, target, body)

    def test_a_cancelled_kill_has_killed_and_the_next_one_reaps(
        self, database: Database, target: ReplicaTarget
    ) -> None:
        async def body(process: Litestream) -> None:
            child, launched = child_of(process), process._child
            killing = asyncio.create_task(process.kill())
            await asyncio.sleep(0)
            killing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await killing
            wait_until(lambda: not process_exists(child), GONE_SECONDS_MAX)
            await process.kill()
            assert launched is not None and launched._process.returncode is not None
            assert process.pid is None

        with_litestream(database, target, body)

    def test_a_child_that_ignores_the_request_to_stop_is_killed(
        self, database: Database, target: ReplicaTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(litestream, "STOP_SECONDS_MAX", 0.2)

        async def body(process: Litestream) -> None:
            child = child_of(process)
            os.kill(child, signal.SIGSTOP)
            assert not await process.stop()
            wait_until(lambda: not process_exists(child), GONE_SECONDS_MAX)

        with_litestream(database, target, body)

    def test_a_child_that_cannot_start_is_reported_with_its_own_words(
        self, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = tmp_path / "broken"
        broken.write_text("#!/bin/sh\necho no disk left >&2\nexit 4\n")
        broken.chmod(0o755)
        monkeypatch.setattr(litestream, "find_binary", lambda _name: broken)

        async def start() -> None:
            process = Litestream(database.path, ReplicaTarget("file:///nowhere"), QUICK)
            with pytest.raises(LitestreamGone, match=r"ended while starting\n  no disk left"):
                await process.start()
            assert process.pid is None

        asyncio.run(start())

    def test_a_path_too_long_for_a_socket_is_none_for_the_child(self, tmp_path: Path, target: ReplicaTarget) -> None:
        database = Database(tmp_path / ("epoch-" + "x" * 100))

        async def body(process: Litestream) -> None:
            await process.sync()
            assert "litestream.sock" in entries(database.path.parent)

        with_litestream(database, target, body)
        database.connection.close()

    def test_odd_characters_in_paths_are_only_characters(self, tmp_path: Path) -> None:
        database = Database(tmp_path / 'o\'dd "dir" $HOME ${X} #é😀: {a}, [b]')
        database.commit()
        target = ReplicaTarget(f"file://{tmp_path}/repl%ica $HOME ü")

        async def body(process: Litestream) -> None:
            await restore(target, (await process.sync()).txid, tmp_path / "out.db")

        with_litestream(database, target, body)
        database.connection.close()
        assert notes_in(tmp_path / "out.db") == 1

    def test_the_configuration_is_private_and_holds_no_secret(self, database: Database, tmp_path: Path) -> None:
        target = ReplicaTarget("s3://b/p", "http://127.0.0.1:1", credentials=Credentials("AK", "s3cr3t"))

        async def body(process: Litestream) -> None:
            configuration = database.path.with_name("litestream.yml")
            assert stat.S_IMODE(configuration.stat().st_mode) == 0o600
            assert "s3cr3t" not in configuration.read_text()
            assert "s3cr3t" not in repr(process.__dict__) + repr(target)

        with_litestream(database, target, body)


class TestTarget:
    @pytest.mark.parametrize(
        "url",
        [
            "s3://bucket",
            "s3:///prefix",
            "file://host/path",
            "file:///",
            "https://a/b",
            "s3://b/p?",
            "s3://b/p#x",
        ],
    )
    def test_an_incomplete_url_is_refused(self, url: str) -> None:
        with pytest.raises(ValueError, match="not s3://bucket/prefix"):
            ReplicaTarget(url)

    def test_given_credentials_replace_all_of_the_environments(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", "of somebody else")
        monkeypatch.setenv("AWS_PROFILE", "somebody")
        monkeypatch.setenv("LITESTREAM_ACCESS_KEY_ID", "somebody")
        environment = ReplicaTarget("s3://b/p", credentials=Credentials("AK", "SK")).environment()
        aws = {name: value for name, value in environment.items() if name.startswith(("AWS_", "LITESTREAM_"))}
        assert aws == {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK"}


class TestRestore:
    def test_exactly_the_computed_boundaries_restore_after_compaction_and_retention(
        self, database: Database, target: ReplicaTarget, replica_directory: Path, tmp_path: Path
    ) -> None:
        notes_at: dict[int, int] = {}

        async def commit_until_compacted(process: Litestream) -> None:
            notes_at[(await process.sync()).txid] = 0
            deadline = asyncio.get_running_loop().time() + 30
            while not compacted(replica_directory):
                assert asyncio.get_running_loop().time() < deadline
                database.commit()
                notes_at[(await process.sync()).txid] = database.notes
                await asyncio.sleep(0.15)

        with_litestream(database, target, commit_until_compacted, COMPACTING)
        files = directory_files(replica_directory)
        boundaries = ltx.restorable_boundaries(files)
        restored = asyncio.run(restorable(target, boundaries[-1] + 1, tmp_path))
        assert boundaries == sorted(restored)
        assert boundaries[-1] >= max(notes_at)
        assert len(boundaries) < max(notes_at), "retention took some boundaries away"
        for txid in boundaries:
            if txid in notes_at:
                assert notes_in(restored[txid]) == notes_at[txid]
        assert_filling_reaches_the_last(files, restored, tmp_path / "copy.db")

    def test_a_txid_between_boundaries_is_refused_and_leaves_nothing(
        self, database: Database, target: ReplicaTarget, tmp_path: Path
    ) -> None:
        async def body(process: Litestream) -> None:
            synced = await process.sync()
            with pytest.raises(NotRestorable):
                await restore(target, synced.txid + 1, tmp_path / "out.db")
            with pytest.raises(NotRestorable):
                await restore(ReplicaTarget((tmp_path / "empty").as_uri()), 1, tmp_path / "out.db")

        with_litestream(database, target, body)
        assert not list(tmp_path.glob("out.db*"))

    def test_a_damaged_file_fails_the_restore_and_leaves_nothing(
        self, database: Database, target: ReplicaTarget, replica_directory: Path, tmp_path: Path
    ) -> None:
        async def body(process: Litestream) -> None:
            synced = await process.sync()
            await process.kill()
            (path,) = directory_files(replica_directory).values()
            body = bytearray(path.read_bytes())
            body[len(body) // 2] ^= 0xFF
            path.write_bytes(body)
            with pytest.raises(LitestreamError, match="restoring TXID 1 failed"):
                await restore(target, synced.txid, tmp_path / "out.db")

        with_litestream(database, target, body)
        assert not list(tmp_path.glob("out.db*"))

    def test_an_existing_file_is_never_touched(self, target: ReplicaTarget, tmp_path: Path) -> None:
        (tmp_path / "out.db").write_text("precious")
        with pytest.raises(FileExistsError):
            asyncio.run(restore(target, 1, tmp_path / "out.db"))
        assert (tmp_path / "out.db").read_text() == "precious"

    def test_a_restore_that_takes_too_long_is_ended(
        self, target: ReplicaTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slow = tmp_path / "slow"
        slow.write_text('#!/bin/sh\ntouch "$8" "$8.tmp"\nexec sleep 60\n')
        slow.chmod(0o755)
        monkeypatch.setattr(litestream, "find_binary", lambda _name: slow)
        with pytest.raises(LitestreamError, match=r"more than 0\.3 s"):
            asyncio.run(restore(target, 1, tmp_path / "out.db", timeout_seconds=0.3))
        assert not list(tmp_path.glob("out.db*"))

    def test_a_cancelled_restore_leaves_nothing(
        self, target: ReplicaTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slow = tmp_path / "slow"
        slow.write_text('#!/bin/sh\ntouch "$8.tmp"\nexec sleep 60\n')
        slow.chmod(0o755)
        monkeypatch.setattr(litestream, "find_binary", lambda _name: slow)

        async def cancel_it() -> None:
            restoring = asyncio.create_task(restore(target, 1, tmp_path / "out.db"))
            await until((tmp_path / "out.db.tmp").exists)
            restoring.cancel()
            with pytest.raises(asyncio.CancelledError):
                await restoring

        asyncio.run(cancel_it())
        assert not list(tmp_path.glob("out.db*"))


def compacted(replica: Path) -> bool:
    """Files of levels 0, 1 and 2 are needed side by side, and raw files only for the latest TXIDs."""
    names = directory_files(replica)
    raw, first, second = ([name for name in names if name.level == level] for level in (0, 1, 2))
    if not raw or len(first) < 3 or len(second) < 2:
        return False
    oldest_raw, newest_raw = min(raw), max(raw)
    newest_compacted = max(name.max_txid for name in names if name.level > 0)
    return oldest_raw.min_txid > ltx.restorable_boundaries(names)[0] + 1 and newest_raw.max_txid > newest_compacted


async def restorable(target: ReplicaTarget, last: int, directory: Path) -> dict[int, Path]:
    """Every TXID that the real restore accepts, found by trying all."""
    restored = {}
    for txid in range(1, last + 1):
        output = directory / f"restored-{txid}.db"
        try:
            await restore(target, txid, output)
        except NotRestorable:
            continue
        restored[txid] = output
    return restored


def assert_filling_reaches_the_last(files: dict[ltx.LtxName, Path], restored: dict[int, Path], copy: Path) -> None:
    """From the oldest boundary on, over files of every level, the copy becomes what restore writes."""
    first, last = min(restored), max(restored)
    copy.write_bytes(restored[first].read_bytes())
    plan = ltx.plan_fill(first, last, files)
    assert plan is not None
    assert plan[0].level > 0 and plan[-1].level == 0
    descriptor = os.open(copy, os.O_RDWR)
    for name in plan:
        ltx.apply(ltx.decode(files[name].read_bytes(), name), descriptor)
    os.close(descriptor)
    assert copy.read_bytes() == restored[last].read_bytes()


@pytest.mark.stack
class TestOnSeaweedFS:
    def test_names_bytes_and_restores_agree(
        self, bucket: Bucket, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "missing.pem"))
        prefix = "tenants/t/ltx/00000001-ABCDEFGH"
        target = bucket.target(prefix)

        async def body(process: Litestream) -> None:
            await process.sync()
            for _ in range(5):
                database.commit()
                synced = await process.sync()
            names = bucket.names(prefix)
            assert ltx.restorable_boundaries(names) == list(range(1, synced.txid + 1))
            assert all(key == f"{prefix}/{ltx.format_name(name)}" for name, key in names.items())
            await restore(target, synced.txid, tmp_path / "out.db")
            copy = os.open(tmp_path / "copy.db", os.O_RDWR | os.O_CREAT)
            plan = ltx.plan_fill(0, synced.txid, names)
            for name in plan or []:
                ltx.apply(ltx.decode(bucket.body(names[name]), name), copy)
            os.close(copy)

        with_litestream(database, target, body)
        assert notes_in(tmp_path / "out.db") == 5
        assert (tmp_path / "copy.db").read_bytes() == (tmp_path / "out.db").read_bytes()

    def test_kills_between_commits_lose_nothing(self, bucket: Bucket, database: Database, tmp_path: Path) -> None:
        target = bucket.target("tenants/killed/ltx/00000001-ABCDEFGH")

        async def body(process: Litestream) -> None:
            for _ in range(4):
                database.commit()
                os.kill(child_of(process), signal.SIGKILL)
                await process.restart()
                synced = await process.sync()
            await restore(target, synced.txid, tmp_path / "out.db")

        with_litestream(database, target, body)
        assert notes_in(tmp_path / "out.db") == 4


@pytest.fixture
def watch() -> Iterator[int]:
    """The reading end of a pipe whose writing end stays open as long as the test."""
    reading, writing = os.pipe()
    yield reading
    os.close(reading)
    os.close(writing)


class TestLauncher:
    @pytest.mark.parametrize(
        ("argv", "status"),
        [
            (["true"], 0),
            (["sh", "-c", "exit 3"], 3),
            (["sh", "-c", "kill -9 $$"], 128 + 9),
            (["./no-such-program"], 127),
        ],
    )
    def test_the_status_of_the_child_is_reported(self, watch: int, argv: list[str], status: int) -> None:
        launched = subprocess.run(
            launcher.command_line(watch, argv), pass_fds=[watch], capture_output=True, check=False
        )
        assert launched.returncode == status

    def test_it_runs_as_a_module(self, watch: int) -> None:
        command = [sys.executable, "-m", "memoree.replication.launcher", "--watch", str(watch), "--", "true"]
        assert subprocess.run(command, pass_fds=[watch], check=False).returncode == 0

    @pytest.mark.parametrize("arguments", [[], ["--watch", "x", "--", "true"], ["--watch", "3", "--"]])
    def test_a_wrong_command_line_is_refused(self, arguments: list[str]) -> None:
        assert launcher.main(arguments) == launcher.EXIT_USAGE

    def test_a_request_to_end_reaches_the_child(self, watch: int) -> None:
        script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done"
        with subprocess.Popen(
            launcher.command_line(watch, ["sh", "-c", script]),
            pass_fds=[watch],
            process_group=0,
            stdout=subprocess.PIPE,
        ) as launched:
            assert launched.stdout is not None
            assert launched.stdout.readline() == b"ready\n"
            launched.terminate()
            assert launched.wait(10) == 5

    def test_the_child_does_not_hold_the_pipe_or_the_signals_python_ignores(self, watch: int) -> None:
        script = f"test ! -e /proc/self/fd/{watch} && grep SigIgn /proc/self/status"
        launched = subprocess.run(
            launcher.command_line(watch, ["sh", "-c", script]),
            pass_fds=[watch],
            capture_output=True,
            check=True,
        )
        assert int(launched.stdout.split()[1], 16) & 1 << signal.SIGPIPE - 1 == 0

    def test_the_child_outlives_the_thread_that_started_it(self, watch: int) -> None:
        launched: list[subprocess.Popen[bytes]] = []

        def start() -> None:
            command = launcher.command_line(watch, ["sleep", "60"])
            launched.append(subprocess.Popen(command, pass_fds=[watch], process_group=0))

        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        wait_until(lambda: bool(children_of(launched[0].pid)))
        (child,) = children_of(launched[0].pid)
        assert process_exists(child)
        os.killpg(launched[0].pid, signal.SIGKILL)
        launched[0].wait(10)
        wait_until(lambda: not process_exists(child), GONE_SECONDS_MAX)

    @pytest.mark.fault_class(47)
    def test_litestream_is_gone_within_a_second_of_its_killed_writer(
        self, database: Database, target: ReplicaTarget, tmp_path: Path
    ) -> None:
        """An orphan would go on uploading, a zombie writer in all but name."""
        writer = textwrap.dedent(f"""
            import asyncio, pathlib
            from memoree.replication.litestream import Litestream, ReplicaTarget

            async def main():
                process = Litestream(pathlib.Path({str(database.path)!r}), ReplicaTarget({target.url!r}))
                await process.start()
                await process.sync()
                print(process.pid, flush=True)
                await asyncio.sleep(60)

            asyncio.run(main())
        """)
        with subprocess.Popen([sys.executable, "-c", writer], stdout=subprocess.PIPE) as owner:
            assert owner.stdout is not None
            launched = int(owner.stdout.readline())
            (child,) = children_of(launched)
            assert process_exists(child)
            owner.kill()
            wait_until(lambda: not process_exists(child) and not process_exists(launched), GONE_SECONDS_MAX)
