"""One run of the job by hand, with the deployment's settings: `python -m functions.gc.app [TENANT]`."""

from __future__ import annotations

from functions.gc.handler import handler
from memoree.serverless.local import run_job

if __name__ == "__main__":
    run_job("gc", handler)
