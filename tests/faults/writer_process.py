"""The real writer process, with what a test cannot wait for left out and what it cannot provoke bent.

    python writer_process.py writer|supervised-writer

The proof of the store, three seconds long and tested elsewhere, shrinks to its canary. `FAULTS_CLOCK_OFFSET_SECONDS`
puts the wall clock of the process off, all but the queue's: a queue has one clock, whoever asks it.
`FAULTS_CHECKPOINT_SECONDS` makes Litestream checkpoint that often instead of once a minute. `FAULTS_COMMAND_VERSION`
makes it a writer of a later program, as far as commands go, and `FAULTS_UNKNOWN_SECONDS` one that looks again sooner.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from functools import wraps

import time_machine

from memoree import command
from memoree.objects.selftest import prove_writable
from memoree.queue.sqlite import SqliteQueue
from memoree.replication import litestream
from memoree.stack import processes
from memoree.writer import tenant, worker


def main() -> int:
    worker.prove_store = prove_writable
    if seconds := os.environ.get("FAULTS_CHECKPOINT_SECONDS"):
        checkpoint_every(float(seconds))
    if seconds := os.environ.get("FAULTS_CLOCK_OFFSET_SECONDS"):
        put_the_clock_off(float(seconds))
    if version := os.environ.get("FAULTS_COMMAND_VERSION"):
        command.COMMAND_VERSION = int(version)
    if seconds := os.environ.get("FAULTS_UNKNOWN_SECONDS"):
        tenant.UNKNOWN_BACK_OFF_SECONDS = float(seconds)
    return processes.main(sys.argv[1:])


def checkpoint_every(seconds: float) -> None:
    render = litestream.render_configuration
    option = f"    checkpoint-interval: {round(seconds * 1000)}ms\n    replica:"

    @wraps(render)
    def with_checkpoints(*arguments: object) -> str:
        return render(*arguments).replace("    replica:", option)

    litestream.render_configuration = with_checkpoints


def put_the_clock_off(seconds: float) -> None:
    defaults = SqliteQueue.__init__.__kwdefaults__
    assert defaults is not None
    defaults["clock"] = lambda: time_machine.escape_hatch.datetime.datetime.now(UTC)
    time_machine.travel(datetime.now(UTC) + timedelta(seconds=seconds), tick=True).start()


if __name__ == "__main__":
    sys.exit(main())
