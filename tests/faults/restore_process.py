"""Restores a tenant from a backup, and dies on the way: `python restore_process.py TENANT BACKUP`.

Every line on standard input is a crash point, or empty for none; the answer is how that restore's process ended. Each
is a process of its own, forked from this one, which has imported everything already.
"""

from __future__ import annotations

import asyncio
import os
import sys

from memoree import crashpoints
from memoree.assembly import job_site
from memoree.backup import record
from memoree.jobs.restore import Options, restore_backup
from memoree.objects.copying import Place
from memoree.settings import StackSettings


async def restore(tenant: str, backup_id: str) -> None:
    async with job_site(StackSettings()) as site:
        found = await record.find(site.store, tenant, backup_id)
        await restore_backup(site, Place(site.store, tenant), found, tenant, Options(replace=True))


def run_until(point: str, tenant: str, backup_id: str) -> int:
    """The exit status of the process, or the negative number of the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        name, _, times = point.partition(":")
        crashpoints._wanted, crashpoints._left = name, int(times or 1)
        try:
            asyncio.run(restore(tenant, backup_id))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    tenant, backup_id = sys.argv[1:]
    for line in sys.stdin:
        print(run_until(line.strip(), tenant, backup_id), flush=True)


if __name__ == "__main__":
    main()
