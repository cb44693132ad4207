"""Named places where a fault test may end the process: at once, as a power cut would.

Active only under the test setting `MEMOREE_TEST_CRASH_AT=name` or `name:n` (the n-th time it is reached); then
`MEMOREE_TEST_CRASH_MARK`, if set, names a file that says the point was reached, `MEMOREE_TEST_CRASH_SUBJECT` narrows
the point to one subject, and `MEMOREE_TEST_CRASH_SIGNAL=SIGSTOP` freezes the process there instead.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

POINTS = (
    "received",
    "staged",
    "applying",
    "applied",
    "synced",
    "head_put",
    "head_moved",
    "acked",
    "takeover_claimed",
    "takeover_restored",
    "takeover_adopted",
    "takeover_ledger",
    "takeover_synced",
    "takeover_done",
    "settling",
    "gc_settled",
    "gc_condemned",
    "gc_confirmed",
    "gc_deleted",
    "erasure_committed",
    "erasure_recorded",
    "erasure_scrubbed",
    "upload_hashed",
    "upload_promoted",
    "upload_sent_on",
)

_wanted, _, _count = os.environ.get("MEMOREE_TEST_CRASH_AT", "").partition(":")
_left = int(_count or 1)
_subject = os.environ.get("MEMOREE_TEST_CRASH_SUBJECT")
_signal = signal.Signals[os.environ.get("MEMOREE_TEST_CRASH_SIGNAL", "SIGKILL")]


def reach(point: str, subject: str | None = None) -> None:
    """End the process if the test setting asks for it here. `subject` is what the step is done to."""
    if point != _wanted or (_subject is not None and subject != _subject):
        return
    assert point in POINTS, f"{point} is not a named crash point"
    global _left
    _left -= 1
    if _left:
        return
    if mark := os.environ.get("MEMOREE_TEST_CRASH_MARK"):
        Path(mark).write_text(point)
    os.kill(os.getpid(), _signal)
