"""A random key that every process of a deployment shares, kept where all of them already look: in the object store."""

from __future__ import annotations

import secrets

from memoree.errors import Code, MemoreeError
from memoree.objects import ObjectMissing, ObjectStore, PreconditionFailed

SECRET_BYTES = 32


async def shared_secret(store: ObjectStore, key: str) -> bytes:
    """The 32 bytes under `key`, made by whoever asks first: the store lets one of several makers win. They survive
    restarts and are the same in every process, which a configured or derived secret would be only by discipline.

    Raises `INTEGRITY_ERROR` when something else lies there, `StoreUnavailable`.
    """
    try:
        found = await store.get(key)
    except ObjectMissing:
        made = secrets.token_bytes(SECRET_BYTES)
        try:
            await store.put(key, made, if_absent=True)
        except PreconditionFailed:
            return await shared_secret(store, key)
        return made
    if found is None or len(found.body) != SECRET_BYTES:
        raise MemoreeError(Code.INTEGRITY_ERROR, f"the object {key} is not a key of {SECRET_BYTES} bytes")
    return found.body
