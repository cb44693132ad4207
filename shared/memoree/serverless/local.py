"""Running the functions that a schedule starts on this host, without a time limit."""

from __future__ import annotations

import sys

import orjson

from memoree.serverless.jobs import JobFailed, JobFunction


class Unhurried:
    """A context whose time does not run out."""

    def get_remaining_time_in_millis(self) -> int:
        return 7 * 24 * 3600 * 1000


def run_job(name: str, handler: JobFunction) -> None:
    """The report goes to standard output; the process ends with 1 if anything failed. Arguments: a tenant, or none."""
    event = {"job": name} | ({"tenant": sys.argv[1]} if len(sys.argv) > 1 else {})
    try:
        report = orjson.dumps(handler(event, Unhurried())).decode()
        status = 0
    except JobFailed as failed:
        report, status = str(failed), 1
    finally:
        handler.container.close()
    sys.stdout.write(report + "\n")
    sys.exit(status)
