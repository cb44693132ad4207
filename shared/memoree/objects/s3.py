"""The object store over the S3 protocol: SeaweedFS, MinIO, Amazon S3 (design §5.3, §7).

Two warm clients share one session. Reads, deletes and plain writes are idempotent and retried by the SDK;
conditional writes go through a client of their own that never retries, because a retry of a write that
did take effect would report `PreconditionFailed` to its own author.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
import botocore.session
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)
from botocore.handlers import add_expect_header
from botocore.parsers import ResponseParserError

from memoree import __version__, limits
from memoree.objects import (
    ClockSkew,
    ObjectInfo,
    ObjectMissing,
    ObjectRange,
    ObjectStoreError,
    OutOfRange,
    PreconditionFailed,
    PresignedPut,
    StoredObject,
    StoreUnavailable,
    check_key,
)

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client
    from types_aiobotocore_s3.type_defs import CompletedPartTypeDef

CONNECT_TIMEOUT_SECONDS = 2.0
READ_TIMEOUT_SECONDS = 10.0
ATTEMPTS_MAX = 3
"""For what may be repeated; the first try counts."""

POOL_CONNECTIONS_MAX = 64
KEEPALIVE_SECONDS = 60.0
DELETE_MANY_KEYS_MAX = 1000
PRESIGN_SECONDS_MAX = 7 * 24 * 3600

PUT_PART_BYTES = 6 * limits.MIB
"""Of a stream; one part is in memory at a time. S3 takes no smaller ones than 5 MiB, and at most 10 000 of them."""
COPY_PART_BYTES = 64 * limits.MIB
"""Copied within one request, which must answer within the read timeout."""
COPY_CONCURRENCY = 4

CLOCK_SKEW_SECONDS_MAX = 14 * 60
"""Stores refuse signatures beyond 15 minutes; a refusal with clocks this far apart is blamed on them."""

PASSING_TAG = ("memoree-keep", "day")

FREE_FORM_LEVELS = 2
"""`tenants/<tenant>/`: names above this depth are anyone's, those below it have one shape per level (§7)."""

_R = TypeVar("_R")

_PRECONDITION_STATUSES = frozenset({409, 412})
_OUR_MISTAKES = (NoCredentialsError, PartialCredentialsError, ParamValidationError)
_NO_ANSWER = (BotoCoreError, ResponseParserError, aiohttp.ClientError, OSError)
"""`OSError` includes `TimeoutError`; a `ResponseParserError` is a proxy's page where XML was due."""

_TRANSIENT_CODES = frozenset({"RequestTimeout", "SlowDown", "Throttling", "OperationAborted"})


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Where a bucket is and who asks. Without keys, the environment's own credentials are used (a Lambda role).

    `endpoint_url` is for anything but Amazon; it also selects path-style addresses.
    """

    bucket: str
    endpoint_url: str | None = None
    region: str = "us-east-1"
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


class S3Store:
    """`ObjectStore` over one bucket. Open it before use: `async with S3Store(settings) as store`, or `open()`."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        self._bucket = settings.bucket
        self._stack = AsyncExitStack()
        self._repeating: S3Client
        self._once: S3Client

    async def open(self) -> Self:
        """Make both clients; they connect on first use."""
        session = get_session()
        self._repeating, self._once = [
            await self._stack.enter_async_context(
                session.create_client(
                    "s3", config=_config(self.settings, attempts_max), **_client_arguments(self.settings)
                )
            )
            for attempts_max in (ATTEMPTS_MAX, 1)
        ]
        for client in (self._repeating, self._once):
            # A body waits for "100 Continue" otherwise: one more round trip for every write.
            client.meta.events.unregister("before-call.s3", add_expect_header)
        return self

    async def close(self) -> None:
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- the ObjectStore protocol

    async def get(self, key: str, *, if_none_match: str | None = None) -> StoredObject | None:
        condition: dict[str, Any] = {} if if_none_match is None else {"IfNoneMatch": if_none_match}
        try:
            with _errors(f"GET {check_key(key)!r}"):
                answer = await self._repeating.get_object(Bucket=self._bucket, Key=key, **condition)
                async with answer["Body"] as stream:  # gives the connection back, also when it breaks
                    body = await stream.read()
        except _NotModified:
            return None
        info = ObjectInfo(key, answer["ETag"], len(body), answer["LastModified"].astimezone(UTC))
        return StoredObject(info, body, _date(answer["ResponseMetadata"]["HTTPHeaders"]))

    async def head(self, key: str) -> ObjectInfo:
        with _errors(f"HEAD {check_key(key)!r}"):
            answer = await self._repeating.head_object(Bucket=self._bucket, Key=key)
        return ObjectInfo(key, answer["ETag"], answer["ContentLength"], answer["LastModified"].astimezone(UTC))

    async def put(
        self,
        key: str,
        body: bytes,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        timeout_seconds: float | None = None,
    ) -> str:
        condition: dict[str, Any] = {}
        if if_match is not None:
            condition["IfMatch"] = if_match
        if if_absent:
            condition["IfNoneMatch"] = "*"
        client = self._once if condition else self._repeating
        with _errors(f"PUT {check_key(key)!r}", conditional=bool(condition)):
            async with asyncio.timeout(timeout_seconds):
                answer = await client.put_object(Bucket=self._bucket, Key=key, Body=body, **condition)
        return answer["ETag"]

    async def get_range(self, key: str, start: int, stop: int, *, if_match: str | None = None) -> ObjectRange:
        condition: dict[str, Any] = {} if if_match is None else {"IfMatch": if_match}
        with _errors(f"GET {check_key(key)!r} from {start}", conditional=if_match is not None, reading=True):
            answer = await self._repeating.get_object(
                Bucket=self._bucket, Key=key, Range=f"bytes={start}-{stop - 1}", **condition
            )
            async with answer["Body"] as stream:
                body = await stream.read()
        return ObjectRange(body, int(answer["ContentRange"].rpartition("/")[2]))

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes], *, size: int) -> None:
        parts = _parts(chunks, PUT_PART_BYTES)
        if size <= PUT_PART_BYTES:
            body = b"".join([part async for part in parts])
            _check_size(key, size, len(body))
            await self.put(key, body)
            return

        async def send(upload: dict[str, Any]) -> list[CompletedPartTypeDef]:
            sent, number = 0, 0
            etags: list[CompletedPartTypeDef] = []
            async for part in parts:
                number, sent = number + 1, sent + len(part)
                if sent > size:
                    break
                with _errors(f"PUT of part {number} of {key!r}"):
                    answer = await self._repeating.upload_part(**upload, PartNumber=number, Body=part)
                etags.append({"PartNumber": number, "ETag": answer["ETag"]})
            _check_size(key, size, sent)
            return etags

        await self._in_parts(key, send)

    async def copy(self, source: ObjectInfo, target: str, *, progress: Callable[[], None] = lambda: None) -> None:
        origin: dict[str, Any] = {
            "CopySource": {"Bucket": self._bucket, "Key": check_key(source.key)},
            "CopySourceIfMatch": source.etag,
        }
        what = f"COPY of {source.key!r} to {check_key(target)!r}"
        if source.size <= COPY_PART_BYTES:
            with _errors(what, conditional=True, reading=True):
                await self._repeating.copy_object(Bucket=self._bucket, Key=target, **origin)
            return
        permits = asyncio.Semaphore(COPY_CONCURRENCY)

        async def part(upload: dict[str, Any], number: int) -> CompletedPartTypeDef:
            start = (number - 1) * COPY_PART_BYTES
            stop = min(start + COPY_PART_BYTES, source.size)
            async with permits:
                with _errors(what, conditional=True, reading=True):
                    answer = await self._repeating.upload_part_copy(
                        **upload, **origin, PartNumber=number, CopySourceRange=f"bytes={start}-{stop - 1}"
                    )
            progress()
            return {"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]}

        async def send(upload: dict[str, Any]) -> list[CompletedPartTypeDef]:
            count = -(-source.size // COPY_PART_BYTES)
            return await _all_or_none([part(upload, number) for number in range(1, count + 1)])

        await self._in_parts(target, send)

    async def delete(self, key: str) -> None:
        with _errors(f"DELETE {check_key(key)!r}"):
            await self._repeating.delete_object(Bucket=self._bucket, Key=key)

    async def list(self, prefix: str, *, start_after: str | None = None) -> AsyncIterator[ObjectInfo]:
        # SeaweedFS orders by path segment ("a/x" before "a-b") and lets StartAfter skip what that misplaces.
        # Both orders agree below the free-form levels; above, the levels are walked and sorted here.
        if prefix.count("/") >= FREE_FORM_LEVELS:
            async for info in self._list_flat(prefix, start_after or ""):
                yield info
            return
        after = start_after or ""
        for name, found in sorted((await self._list_level(prefix)).items()):
            if found is not None:
                if name > after:
                    yield found
            elif name > after or after.startswith(name):
                async for info in self.list(name, start_after=start_after):
                    yield info

    async def children(self, prefix: str) -> AsyncIterator[str]:
        for name in await self._list_level(prefix):
            yield name

    async def abort_unfinished(self, prefix: str, *, before: datetime) -> int:
        aborted = 0
        pages = self._repeating.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
        with _errors(f"LIST of unfinished writes under {prefix!r}"):
            async for page in pages:
                for entry in page.get("Uploads", []):
                    if entry["Initiated"].astimezone(UTC) < before:
                        await self._abort(self._part_of(entry["Key"], entry["UploadId"]))
                        aborted += 1
        return aborted

    def presigned_delete(self, key: str, *, expires_seconds: int) -> str | None:
        return self._presigned("delete_object", key, expires_seconds)

    def presigned_put(self, key: str, *, size: int, expires_seconds: int) -> PresignedPut | None:
        url = self._presigned("put_object", key, expires_seconds, ContentLength=size)
        return PresignedPut(url, {"Content-Length": str(size)})

    # ---- beyond the protocol

    def presigned_get(self, key: str, *, expires_seconds: int, content_type: str, disposition: str) -> str:
        """A URL that answers with the object under these headers until it expires, or this process's own credentials
        do."""
        shown = {"ResponseContentType": content_type, "ResponseContentDisposition": disposition}
        return self._presigned("get_object", key, expires_seconds, **shown)

    async def put_passing(self, key: str, body: bytes) -> None:
        """An object that nobody needs tomorrow. The bucket's lifecycle goes by its tag, `PASSING_TAG`."""
        with _errors(f"PUT {check_key(key)!r}"):
            await self._repeating.put_object(Bucket=self._bucket, Key=key, Body=body, Tagging="=".join(PASSING_TAG))

    async def delete_many(self, keys: Sequence[str]) -> dict[str, str]:
        """Delete up to a thousand keys per request; returns key → reason for **every** key not confirmed
        deleted (field fault 49). Missing objects count as deleted."""
        failures: dict[str, str] = {}
        for start in range(0, len(keys), DELETE_MANY_KEYS_MAX):
            batch = [check_key(key) for key in keys[start : start + DELETE_MANY_KEYS_MAX]]
            with _errors(f"DELETE of {len(batch)} objects"):
                answer = await self._repeating.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in batch]}
                )
            confirmed = {entry["Key"] for entry in answer.get("Deleted", [])}
            refused = {entry["Key"]: _reason(entry) for entry in answer.get("Errors", []) if "Key" in entry}
            for key in batch:
                if key in refused or key not in confirmed:
                    failures[key] = refused.get(key, "the store did not answer for this key")
        return failures

    async def ensure_bucket(self) -> None:
        """Create the bucket unless it is there and ours. Needs the right to create buckets only if it is not."""
        with _errors(f"HEAD bucket {self._bucket!r}"):
            try:
                await self._repeating.head_bucket(Bucket=self._bucket)
                return
            except ClientError as error:
                if _status(error) != 404:
                    raise
        with _errors(f"CREATE bucket {self._bucket!r}"):
            try:
                await self._repeating.create_bucket(Bucket=self._bucket, **_location(self.settings.region))
            except ClientError as error:
                if _code(error) != "BucketAlreadyOwnedByYou":  # another process of ours was faster
                    raise

    # ---- inside

    async def _in_parts(
        self, key: str, send: Callable[[dict[str, Any]], Awaitable[Sequence[CompletedPartTypeDef]]]
    ) -> None:
        """A write in parts: shown when all of them are there, given up otherwise."""
        with _errors(f"PUT of {check_key(key)!r} in parts"):
            begun = await self._repeating.create_multipart_upload(Bucket=self._bucket, Key=key)
        upload = self._part_of(key, begun["UploadId"])
        try:
            parts = await send(upload)
            with _errors(f"PUT of {key!r} in {len(parts)} parts"):
                await self._repeating.complete_multipart_upload(**upload, MultipartUpload={"Parts": list(parts)})
        except BaseException:
            with suppress(ObjectStoreError):  # what stays is given up later, by age
                await asyncio.shield(self._abort(upload))
            raise

    async def _abort(self, upload: dict[str, Any]) -> None:
        with _errors(f"ABORT of the parts of {upload['Key']!r}"):
            await self._repeating.abort_multipart_upload(**upload)

    def _part_of(self, key: str, upload_id: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": key, "UploadId": upload_id}

    def _presigned(self, method: str, key: str, expires_seconds: int, **more: Any) -> str:
        if not 0 < expires_seconds <= PRESIGN_SECONDS_MAX:
            raise ValueError(f"a presigned URL cannot live for {expires_seconds} s")
        url: str = self._presigner.generate_presigned_url(
            method, Params={"Bucket": self._bucket, "Key": check_key(key), **more}, ExpiresIn=expires_seconds
        )
        return url

    @cached_property
    def _presigner(self) -> Any:
        """A client of the synchronous SDK: signing needs no connection, and the protocol's methods are synchronous.
        Made on first use, since few processes presign."""
        return botocore.session.get_session().create_client(
            "s3", config=Config(**_options(self.settings)), **_client_arguments(self.settings)
        )

    async def _list_flat(self, prefix: str, start_after: str) -> AsyncIterator[ObjectInfo]:
        resume: dict[str, Any] = {"StartAfter": start_after} if start_after else {}
        pages = self._repeating.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix, **resume)
        with _errors(f"LIST {prefix!r}"):
            async for page in pages:
                for entry in page.get("Contents", []):
                    if entry["Key"] > start_after:
                        yield _listed(entry)

    async def _list_level(self, prefix: str) -> dict[str, ObjectInfo | None]:
        """Name → object, or `None` for a name that ends in `/`: one level of the tree, all pages."""
        found: dict[str, ObjectInfo | None] = {}
        pages = self._repeating.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix, Delimiter="/"
        )
        with _errors(f"LIST {prefix!r}"):
            async for page in pages:
                found |= {entry["Prefix"]: None for entry in page.get("CommonPrefixes", [])}
                found |= {entry["Key"]: _listed(entry) for entry in page.get("Contents", [])}
        return found


class _NotModified(ObjectStoreError):
    """The answer 304, which the SDK reports as an error."""


@contextmanager
def _errors(what: str, *, conditional: bool = False, reading: bool = False) -> Iterator[None]:
    """Turns what the SDK raises into the errors of the object store. `reading` under a condition tells a missing
    object from one that is another version; writing does not."""
    try:
        yield
    except ClientError as error:
        raise _translated(error, what, conditional=conditional, reading=reading) from error
    except _OUR_MISTAKES as error:
        raise ObjectStoreError(f"{what}: {error}") from error
    except _NO_ANSWER as error:
        raise StoreUnavailable(f"{what}: no answer ({type(error).__name__}: {error})") from error


def _translated(error: ClientError, what: str, *, conditional: bool, reading: bool) -> ObjectStoreError:
    status, code = _status(error), _code(error)
    if status == 304:
        return _NotModified(what)
    if code == "NoSuchBucket":
        return ObjectStoreError(f"{what}: the bucket does not exist")
    if code == "RequestTimeTooSkewed" or (status == 403 and _skew(error) > CLOCK_SKEW_SECONDS_MAX):
        return ClockSkew(f"{what}: clock skew: this host's clock is too far from the store's; set it right")
    if status == 416:
        return OutOfRange(f"{what}: the object ends before")
    if conditional and (status in _PRECONDITION_STATUSES or (status == 404 and not reading)):
        return PreconditionFailed(f"{what}: {code}")
    if status == 404:
        return ObjectMissing(f"{what}: there is no such object")
    if status >= 500 or status == 429 or code in _TRANSIENT_CODES:
        return StoreUnavailable(f"{what}: the store answered {status} {code}")
    return ObjectStoreError(f"{what}: the store refused with {status} {_reason(error.response['Error'])}")


async def _parts(chunks: AsyncIterator[bytes], part_bytes: int) -> AsyncIterator[bytes]:
    """The same bytes in parts of one size; only the last may be smaller."""
    collected: list[bytes] = []
    room = part_bytes
    async for chunk in chunks:
        while len(chunk) >= room:
            part = b"".join((*collected, chunk[:room]))
            collected.clear()
            chunk, room = chunk[room:], part_bytes
            yield part
            del part  # before the next one is collected
        collected.append(chunk)
        room -= len(chunk)
    if room < part_bytes:
        yield b"".join(collected)


def _check_size(key: str, expected: int, found: int) -> None:
    if found != expected:
        raise ObjectStoreError(f"{key!r} was to have {expected} bytes, another number came")


async def _all_or_none(works: Sequence[Coroutine[Any, Any, _R]]) -> list[_R]:
    """Every result in order; after a failure nothing of it runs on."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _reason(entry: Mapping[str, Any]) -> str:
    return f"{entry.get('Code', 'UnknownError')}: {entry.get('Message', '')}"


def _skew(error: ClientError) -> float:
    """Seconds between this host's clock and the answer's `Date`: all that a refused HEAD tells, without a body."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    if "date" not in headers:
        return 0.0
    return abs((datetime.now(UTC) - _date(headers)).total_seconds())


def _date(headers: Mapping[str, str]) -> datetime:
    return parsedate_to_datetime(headers["date"]).astimezone(UTC)


def _listed(entry: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(entry["Key"], entry["ETag"], entry["Size"], entry["LastModified"].astimezone(UTC))


def _location(region: str) -> dict[str, Any]:
    """Amazon's first region must not be named, every other one must."""
    return {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}


def _client_arguments(settings: S3Settings) -> dict[str, Any]:
    return {
        "endpoint_url": settings.endpoint_url,
        "region_name": settings.region,
        "aws_access_key_id": settings.access_key_id,
        "aws_secret_access_key": settings.secret_access_key,
        "aws_session_token": settings.session_token,
    }


def _options(settings: S3Settings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "signature_version": "s3v4",
        "s3": {"addressing_style": "path" if settings.endpoint_url else "auto"},
    }
    if (urlsplit(settings.endpoint_url or "").hostname or "").startswith("127."):
        options["proxies"] = {}  # a proxy named in the environment cannot reach this host's loopback
    return options


def _config(settings: S3Settings, attempts_max: int) -> AioConfig:
    return AioConfig(
        **_options(settings),
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=READ_TIMEOUT_SECONDS,
        max_pool_connections=POOL_CONNECTIONS_MAX,
        connector_args={"keepalive_timeout": KEEPALIVE_SECONDS},
        # Not `max_attempts`, which here means retries: 1 would send a conditional write twice.
        retries={"mode": "standard", "total_max_attempts": attempts_max},
        user_agent=f"memoree/{__version__}",  # fixed, because the SDK's own is rebuilt for every request
        # TLS or the signed SHA-256 covers a body on its way; blobs and LTX files carry their own checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        parameter_validation=False,  # `check_key` and the types have done it; it costs 5 % of a call
    )
