"""What only the SQLite queue has: one file that several processes share, and the care that takes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from sqlite_support import LONG, ManualClock, message, receive, run

from memoree.queue import (
    DEDUPLICATION_SECONDS,
    PATIENT_GROUPS,
    Message,
    QueueError,
    sqlite_store,
    sqlite_worker,
)
from memoree.queue.sqlite import SqliteQueue

CHILD_SECONDS_MAX = 30.0

CHILD_PRELUDE = """
import asyncio, os, sys, time
from pathlib import Path
from memoree.queue import OutgoingMessage
from memoree.queue.sqlite import SqliteQueue
queue = SqliteQueue(Path(sys.argv[1]))
"""


@contextlib.contextmanager
def child(path: Path, code: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs `code` with an open `queue`."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD_PRELUDE + textwrap.dedent(code), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_from(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def drain(queue: SqliteQueue, max_messages: int) -> list[Message]:
    seen: list[Message] = []
    while batch := await receive(queue, max_messages):
        seen += batch
        await queue.ack(batch)
    return seen


# Durability and sharing


def test_every_acknowledged_send_survives_kill_9_of_the_sender(path: Path) -> None:
    sending = """
        async def send(lane):
            for number in range(100_000):
                print(await queue.send(OutgoingMessage("body", f"lane-{lane}", f"{lane}-{number}")), flush=True)

        async def main():
            await asyncio.gather(*[send(lane) for lane in range(8)])

        asyncio.run(main())
    """
    with child(path, sending) as process:
        acknowledged = [line_from(process) for _ in range(300)]
        process.send_signal(signal.SIGKILL)
        assert process.stdout is not None
        rest = process.stdout.read().split("\n")
        acknowledged += [line for line in rest if len(line) == len(acknowledged[0])]

    async def scenario(queue: SqliteQueue) -> None:
        seen = await drain(queue, 1000)
        assert {m.message_id for m in seen} >= set(acknowledged)
        assert len({m.message_id for m in seen}) == len(seen)

    run(path, scenario)


def test_many_processes_may_make_and_use_the_file_at_once(path: Path) -> None:
    sending = """
        async def main():
            for number in range(50):
                await queue.send(OutgoingMessage("body", "tenant-a", f"{os.getpid()}-{number}"))
            await queue.close()

        print("ready", flush=True)
        sys.stdin.readline()
        asyncio.run(main())
        print("done", flush=True)
    """
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(child(path, sending)) for _ in range(4)]
        assert [line_from(process) for process in processes] == ["ready"] * 4
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [line_from(process) for process in processes] == ["done"] * 4

    async def scenario(queue: SqliteQueue) -> None:
        assert len(await drain(queue, 1000)) == 200

    run(path, scenario)


SEND_WHEN_TOLD = """
    async def main():
        await queue.stats()
        print("ready", flush=True)
        for number, line in enumerate(sys.stdin):
            await queue.send(OutgoingMessage(repr(time.time()), "tenant-a", str(number)))
        await queue.close()

    asyncio.run(main())
"""


async def send_from(process: subprocess.Popen[str], queue: SqliteQueue) -> float:
    """Have the child send while a receive waits; the seconds from before its send until the message is here."""
    waiting = asyncio.create_task(receive(queue, wait_seconds=CHILD_SECONDS_MAX))
    await queue.stats()  # the receive waits by now
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    [received] = await waiting
    await queue.ack([received])
    return time.time() - float(received.body)


def test_a_send_of_another_process_wakes_a_receive(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_worker, "POLL_SECONDS", CHILD_SECONDS_MAX)

    async def scenario(queue: SqliteQueue) -> None:
        with child(path, SEND_WHEN_TOLD) as process:
            assert line_from(process) == "ready"
            latencies = sorted([await send_from(process, queue) for _ in range(20)])
        assert latencies[10] < 0.1, latencies

    run(path, scenario)


def test_the_wake_up_works_from_a_directory_too_deep_for_a_socket_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_worker, "POLL_SECONDS", CHILD_SECONDS_MAX)
    path = tmp_path.joinpath(*["a-long-directory-name"] * 8, "queue.db")

    async def scenario(queue: SqliteQueue) -> None:
        with child(path, SEND_WHEN_TOLD) as process:
            assert line_from(process) == "ready"
            assert await send_from(process, queue) < CHILD_SECONDS_MAX / 2

    run(path, scenario)


def test_without_a_socket_the_poll_finds_what_another_process_sent(path: Path) -> None:
    path.with_name("queue.db-wake").write_text("in the way of the directory")

    async def scenario(queue: SqliteQueue) -> None:
        with child(path, SEND_WHEN_TOLD) as process:
            assert line_from(process) == "ready"
            assert await send_from(process, queue) < CHILD_SECONDS_MAX / 2

    run(path, scenario)


def test_the_socket_of_a_dead_process_is_swept_and_a_closed_queue_leaves_none(path: Path) -> None:
    receiving = """
        async def main():
            waiting = asyncio.create_task(
                queue.receive(max_messages=1, wait_seconds=60, visibility_seconds=60)
            )
            await queue.stats()
            print("waiting", flush=True)
            await waiting

        asyncio.run(main())
    """
    sockets = path.with_name("queue.db-wake")
    with child(path, receiving) as process:
        assert line_from(process) == "waiting"
        process.send_signal(signal.SIGKILL)
        process.wait(CHILD_SECONDS_MAX)
    assert len(list(sockets.iterdir())) == 1

    async def scenario(queue: SqliteQueue) -> None:
        assert await receive(queue) == []
        assert len(list(sockets.iterdir())) == 2
        await queue.send(message("a"))

    run(path, scenario)
    assert list(sockets.iterdir()) == []


# Time


def test_a_deduplication_id_is_free_again_after_five_minutes(path: Path, clock: ManualClock) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        first = await queue.send(message("a"))
        clock.advance(DEDUPLICATION_SECONDS - 1)
        assert await queue.send(message("a")) == first
        clock.advance(1)
        assert await queue.send(message("a")) != first
        assert len(await receive(queue)) == 2

    run(path, scenario, clock=clock)


def test_expired_deduplication_ids_are_pruned(path: Path, clock: ManualClock) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        await queue.send_batch([message(str(number)) for number in range(100)])
        clock.advance(DEDUPLICATION_SECONDS)
        for number in range(10):
            await queue.send(message(f"later-{number}"))

    run(path, scenario, clock=clock)
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("SELECT count(*) FROM deduplication").get == 10


def test_the_oldest_age_is_that_of_the_oldest_unacknowledged_message(path: Path, clock: ManualClock) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        assert (await queue.stats()).oldest_age_seconds is None
        await queue.send(message("a"))
        clock.advance(7)
        await queue.send(message("b"))
        [oldest] = await receive(queue, 1)
        clock.advance(1)
        assert (await queue.stats()).oldest_age_seconds == 8
        await queue.ack([oldest])
        assert (await queue.stats()).oldest_age_seconds == 1

    run(path, scenario, clock=clock)


def test_a_message_of_a_patient_group_ages_only_until_it_is_delivered(path: Path, clock: ManualClock) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        await queue.send(message("a", group=f"{PATIENT_GROUPS}one"))
        clock.advance(7)
        assert (await queue.stats()).oldest_age_seconds == 7
        [taken] = await receive(queue, 1)
        assert (await queue.stats()).oldest_age_seconds is None
        await queue.send(message("b"))
        clock.advance(2)
        assert (await queue.stats()).oldest_age_seconds == 2
        await queue.set_visibility([taken], 0)
        assert (await queue.stats()).oldest_age_seconds == 9

    run(path, scenario, clock=clock)


def test_an_overdue_receipt_still_counts_while_nobody_else_got_the_message(path: Path, clock: ManualClock) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        await queue.send(message("a"))
        held = await receive(queue)
        clock.advance(LONG + 1)
        await queue.ack(held)
        assert await receive(queue) == []

    run(path, scenario, clock=clock)


# Fairness, dead letters


def test_a_backlog_of_one_group_does_not_starve_the_others(path: Path) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        await queue.send_batch([message(f"big-{number}", group="big") for number in range(50)])
        await queue.send_batch([message(f"small-{number}", group=f"small-{number % 2}") for number in range(4)])
        order = []
        while batch := await receive(queue, 2):
            order.append(batch[0].group)
            await queue.ack(batch)
        assert order[:4] == ["big", "small-0", "small-1", "big"]

    run(path, scenario)


# Speed


def steps_of_a_receive(path: Path, groups: int, messages: int, locked_groups: int = 0) -> int:
    """Virtual machine steps (in hundreds) of one receive of ten with that backlog."""
    with contextlib.closing(sqlite_store.open_database(path)) as connection:
        backlog = [message(str(number), group=f"g{number % groups}") for number in range(messages)]
        connection.execute("BEGIN")
        sqlite_store.enqueue(connection, backlog, 0.0)
        steps = 0

        def count() -> bool:
            nonlocal steps
            steps += 1
            return False

        def deliver(max_messages: int) -> list[Message]:
            return sqlite_store.deliver(
                connection,
                max_messages=max_messages,
                visibility_seconds=LONG,
                except_groups=(),
                receive_count_max=10,
                now=1.0,
            )

        if locked_groups:
            assert len(deliver(locked_groups)) == locked_groups
        connection.set_progress_handler(count, 100)
        assert len(deliver(10)) == 10
        connection.set_progress_handler(None)
        connection.execute("COMMIT")
        return steps


def test_a_receive_costs_the_same_with_ten_thousand_messages_of_one_group(tmp_path: Path) -> None:
    few = steps_of_a_receive(tmp_path / "few.db", groups=1, messages=20)
    many = steps_of_a_receive(tmp_path / "many.db", groups=1, messages=10_000)
    assert many <= 2 * few


def test_a_receive_costs_the_same_with_ten_thousand_groups(tmp_path: Path) -> None:
    few = steps_of_a_receive(tmp_path / "few.db", groups=20, messages=20)
    many = steps_of_a_receive(tmp_path / "many.db", groups=10_000, messages=10_000)
    locked = steps_of_a_receive(tmp_path / "locked.db", groups=10_000, messages=10_000, locked_groups=9_000)
    assert many <= 2 * few
    assert locked <= 2 * few


@pytest.mark.parametrize("groups", [1, 10_000])
def test_a_backlog_of_ten_thousand_is_drained_completely(path: Path, groups: int) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        await queue.send_batch([message(str(n), group=f"g{n % groups}", body=str(n)) for n in range(10_000)])
        seen = await drain(queue, 200)
        assert [m.body for m in seen] == [str(n) for n in range(10_000)]

    run(path, scenario)


def test_concurrent_senders_share_their_commits(path: Path) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        async def send(lane: int, attempt: int) -> None:
            for number in range(10):
                await queue.send(message(f"{attempt}-{lane}-{number}"))

        rates = []
        for attempt in range(3):  # the best of three: others use the disk too
            started = time.monotonic()
            await asyncio.gather(*[send(lane, attempt) for lane in range(64)])
            rates.append(640 / (time.monotonic() - started))
        assert max(rates) > 1500, rates

    run(path, scenario)


def test_a_waiting_receive_costs_nearly_no_processor_time(path: Path) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        await receive(queue)
        before = time.process_time()
        assert await receive(queue, wait_seconds=2) == []
        assert time.process_time() - before < 0.1

    run(path, scenario)


# Faults


def test_a_file_that_is_no_database_is_an_error_and_a_sound_one_works_afterwards(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)

    async def scenario(queue: SqliteQueue) -> None:
        for _ in range(2):
            with pytest.raises(QueueError, match=r"queue\.db"):
                await queue.send(message("a"))
        with pytest.raises(QueueError):
            await receive(queue, wait_seconds=5)
        await asyncio.to_thread(path.unlink)
        await queue.send(message("a"))
        assert len(await receive(queue)) == 1

    run(path, scenario)


def test_damage_in_the_middle_of_the_file_is_an_error(path: Path) -> None:
    async def fill(queue: SqliteQueue) -> None:
        await queue.send_batch([message(str(number), body="x" * 3000) for number in range(100)])

    run(path, fill)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))

    async def scenario(queue: SqliteQueue) -> None:
        with pytest.raises(QueueError):
            await receive(queue)
        with pytest.raises(QueueError):
            await queue.send(message("a"))

    run(path, scenario)


def test_a_directory_in_place_of_the_file_is_an_error(path: Path) -> None:
    path.mkdir()

    async def scenario(queue: SqliteQueue) -> None:
        with pytest.raises(QueueError):
            await queue.send(message("a"))
        assert all(isinstance(outcome, QueueError) for outcome in await queue.send_batch([message("a"), message("b")]))

    run(path, scenario)


def test_a_file_removed_while_in_use_is_reported_before_a_new_one_is_made(path: Path) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        await queue.send(message("a"))
        waiting = asyncio.create_task(
            queue.receive(
                max_messages=1,
                wait_seconds=CHILD_SECONDS_MAX,
                visibility_seconds=LONG,
                except_groups=["tenant-a"],
            )
        )
        await queue.stats()
        await asyncio.to_thread(path.unlink)
        with pytest.raises(QueueError, match="removed or replaced"):
            await waiting
        await queue.send(message("b"))

    run(path, scenario)
    assert path.exists()


@pytest.mark.parametrize(
    ("statement", "reason"),
    [("CREATE TABLE other (x)", "not a queue"), ("PRAGMA user_version = 99", "format 99")],
)
def test_a_database_of_another_kind_or_version_is_left_alone(path: Path, statement: str, reason: str) -> None:
    if "99" in statement:
        sqlite_store.open_database(path).close()
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute(statement)
    before = path.read_bytes()

    async def scenario(queue: SqliteQueue) -> None:
        with pytest.raises(QueueError, match=reason):
            await queue.send(message("a"))

    run(path, scenario)
    assert path.read_bytes() == before


def test_another_process_that_holds_the_lock_delays_a_send_but_not_the_event_loop(path: Path) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        await queue.stats()
        with contextlib.closing(apsw.Connection(str(path))) as other:
            other.execute("BEGIN IMMEDIATE")
            sending = asyncio.create_task(queue.send(message("a")))
            deadline = time.monotonic() + 0.2
            turns = 0
            while time.monotonic() < deadline:
                turns += 1
                await asyncio.sleep(0.001)
            assert not sending.done()
            assert turns > 20
            other.execute("COMMIT")
        await sending
        assert len(await receive(queue)) == 1

    run(path, scenario)


def test_a_lock_held_too_long_is_an_error_and_the_queue_recovers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY_MILLISECONDS_MAX", 50)

    async def scenario(queue: SqliteQueue) -> None:
        await queue.stats()
        with contextlib.closing(apsw.Connection(str(path))) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(QueueError, match="Busy"):
                await queue.send(message("a"))
            other.execute("ROLLBACK")
        await queue.send(message("a"))

    run(path, scenario)


def test_calls_beyond_what_may_wait_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_worker, "PENDING_MAX", 10)

    async def scenario(queue: SqliteQueue) -> None:
        await queue.stats()
        with contextlib.closing(apsw.Connection(str(path))) as other:
            other.execute("BEGIN IMMEDIATE")
            sends = [asyncio.create_task(queue.send(message(str(number)))) for number in range(40)]
            await asyncio.sleep(0)
            other.execute("COMMIT")
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, QueueError)]
        assert refused
        assert len(await drain(queue, 100)) == 40 - len(refused)

    run(path, scenario)


def test_a_full_disk_is_an_error_and_stores_nothing(path: Path) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        await queue.send(message("a"))
        await queue._read(lambda connection, _now: connection.pragma("max_page_count", 20))
        with pytest.raises(QueueError, match="full"):
            await queue.send(message("b", body="x" * 200_000))
        assert [m.body for m in await drain(queue, 10)] == ["body"]
        await queue.send(message("b", body="x" * 200_000))

    run(path, scenario)


def test_a_delivery_to_a_cancelled_receive_is_given_back_at_once(path: Path) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        for number in range(50):
            await queue.send(message(str(number)))
            waiting = asyncio.create_task(receive(queue, wait_seconds=5))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            received = waiting.result() if not waiting.cancelled() else await receive(queue, wait_seconds=5)
            assert len(received) == 1
            await queue.ack(received)

    run(path, scenario)


def test_an_acknowledged_body_is_gone_from_the_file(path: Path) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        await queue.send(message("a", body="the secret of the sea " * 1000))
        await queue.ack(await receive(queue))

    run(path, scenario)
    assert b"the secret of the sea" not in path.read_bytes()
    assert not path.with_name("queue.db-wal").exists()


def test_a_scrubbed_file_in_use_holds_nothing_of_what_was_acknowledged(path: Path) -> None:
    """Neither in its log nor where rows were moved about."""

    async def scenario(queue: SqliteQueue) -> None:
        bodies = [f"the secret of the sea {number} " * (1 + number % 9) for number in range(60)]
        await queue.send_batch([message(f"m{number}", body=body) for number, body in enumerate(bodies)])
        await queue.send(message("kept", group="tenant-b", body="what waits"))
        for _ in range(8):
            await queue.ack([each for each in await receive(queue) if each.group == "tenant-a"])
        await queue.scrub()
        files = b"".join(each.read_bytes() for each in path.parent.glob("queue.db*") if each.is_file())
        assert b"the secret" not in files and b"of the sea" not in files
        assert b"what waits" in files
        assert (await queue.stats()).in_flight == 1

    run(path, scenario)


def test_a_file_that_others_keep_busy_is_not_scrubbed_and_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY_MILLISECONDS_MAX", 50)

    async def scenario(queue: SqliteQueue) -> None:
        await queue.send(message("a"))
        reader = apsw.Connection(str(path))
        reader.execute("BEGIN; SELECT * FROM message").fetchall()
        await queue.ack(await receive(queue))
        with pytest.raises(QueueError, match="in use"):
            await queue.scrub()
        reader.close()
        await queue.scrub()

    run(path, scenario)


def test_the_file_is_for_its_owner_only(path: Path) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        await queue.send(message("a"))
        for file in path.parent.glob("queue.db*"):
            assert file.stat().st_mode & 0o077 == 0 or file.is_dir(), file

    run(path, scenario)


def test_closing_a_queue_that_was_never_used_makes_no_file(path: Path) -> None:
    async def scenario(queue: SqliteQueue) -> None:
        await queue.close()

    run(path, scenario)
    assert not path.exists()
