"""What the scripts beside this file do: run SeaweedFS in a directory, or look at one that runs there."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import orjson

from memoree import limits
from memoree.errors import MemoreeError
from memoree.ids import new_ulid
from memoree.objects import ObjectStoreError
from memoree.objects.s3 import S3Settings, S3Store
from memoree.stack.seaweedfs import SeaweedServer

BYTES_FREE_MIN = 1024 * limits.MIB
"""Below, its volumes turn read-only."""


async def start(server: SeaweedServer) -> int:
    """Until it is interrupted. The first line of standard output says that it is ready."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await server.start()
        sys.stdout.write("READY\n" + "".join(f"{name}={value}\n" for name, value in variables(server.settings).items()))
        sys.stdout.flush()
        ending = (asyncio.create_task(stop.wait()), asyncio.create_task(server.wait()))
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        for task in ending:
            task.cancel()
        return 0 if stop.is_set() else 1
    finally:
        await server.kill()


def variables(settings: S3Settings) -> Mapping[str, str]:
    return {
        "MEMOREE_BUCKET": settings.bucket,
        "MEMOREE_ENDPOINT_URL": str(settings.endpoint_url),
        "MEMOREE_ACCESS_KEY_ID": str(settings.access_key_id),
        "MEMOREE_SECRET_ACCESS_KEY": str(settings.secret_access_key),
    }


async def ready(server: SeaweedServer) -> int:
    """Health endpoints of stores lie: only an object that came back proves anything."""
    server.attach()
    key, canary = f"canaries/{new_ulid()}", new_ulid().encode()
    async with S3Store(server.settings) as store:
        await store.put(key, canary)
        found = await store.get(key)
        await store.delete(key)
    return 0 if found is not None and found.body == canary else 1


async def headroom(server: SeaweedServer) -> int:
    server.attach()
    left = await server.headroom()
    sys.stdout.write(orjson.dumps(asdict(left)).decode() + "\n")
    return 0 if left.bytes_free >= BYTES_FREE_MIN and left.volumes_free else 1


def main(arguments: list[str]) -> int:
    command, directory, bucket = arguments
    works = {"start": start, "ready": ready, "headroom": headroom}
    try:
        return asyncio.run(works[command](SeaweedServer(Path(directory), bucket=bucket)))
    except (MemoreeError, ObjectStoreError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
