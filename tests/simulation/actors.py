"""Clients that write with keys and retry, readers that ask for what they know of, and disasters for writers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import orjson

from memoree import limits
from memoree.errors import HTTP_STATUS, Code, MemoreeError
from memoree.jobs.gc import Grace, collect
from memoree.jobs.replicated import ReplicatedTenancy
from memoree.objects import ObjectStoreError
from memoree.operations.call import decode, validate
from memoree.service import Reply, Request
from memoree.writer.reign import Reign
from simulation.judge import Judge, State, Written
from simulation.world import BLOB_BYTES, ApiHost, World, WriterHost

CONTEXT = {"workspace_id": "wsp_lab", "project_id": "prj_kiln"}
CALL_SECONDS_MAX = 5.0
"""After that a client believes that the api is gone."""
WRITE_WAIT_SECONDS = 2.0
RETRY_SECONDS = 3.0
RESTARTED_SECONDS = 2.5
"""Within that, whatever died is there again."""
MOVES_BETWEEN = 3
"""Of head, before a disaster that comes with one: on average."""
CONFLICT = HTTP_STATUS[Code.REVISION_CONFLICT]
GIVEN_UP = "is given up"


class Client:
    """Writes one thing after the other, each until it is decided, and looks at what it wrote."""

    def __init__(self, world: World, apis: list[ApiHost], number: int, *, name: str = "c") -> None:
        self._world, self._apis = world, apis
        self._name = f"{name}{number}"
        self._random = world.random
        self._tenant = world.tenants[number % len(world.tenants)]
        self._claims: list[Written] = []
        self._artifacts: list[tuple[Written, bytes]] = []
        self.process = world.host("client")
        self.task = self.process.task(self._run())

    async def _run(self) -> None:
        for number in range(self._world.plan.writes_per_client):
            await self._write(f"{self._name}/{number}")
            if self._random.random() < 0.5:
                await self._look()
            await asyncio.sleep(self._world.plan.thinking_seconds * self._random.random())

    # --- writing ------------------------------------------------------------------------------------------------

    async def _write(self, key: str) -> None:
        luck = self._random.random()
        if luck < (0.5 if self._world.plan.collects else 0.15):
            await self._put(key, small=False)
        elif luck < 0.3:
            await self._put(key, small=True)
        elif luck < 0.45 and self._claims:
            await self._revise_twice(key, self._claims.pop())
        elif luck < 0.55:
            await self._twice(key)
        else:
            await self._assert(key)
        if self._random.random() < 0.1 and self._claims:
            await self._repeat(self._claims[-1])

    async def _put(self, key: str, *, small: bool) -> None:
        if small:
            body = f"{key} of {self._tenant}: cone 6 at 21:40".encode()
            content = {"type": "text", "data": body.decode()}
            media_type = "text/plain"
        else:
            body = self._large_body(key)
            content = {"type": "base64", "data": _base64(body)}
            media_type = "application/octet-stream"
        payload = {"kind": "log", "title": key, "media_type": media_type, "content": content}
        written = await self._decided(key, "artifact.put", payload, "artifact_id")
        if small:
            self._artifacts.append((written, body))

    def _large_body(self, key: str) -> bytes:
        """Something new, or what lies in the store already and nobody cites: the collector may be after it."""
        left = self._world.left[self._tenant]
        if left and self._random.random() < 0.7:
            return left[int(self._random.random() * len(left))]
        return (key.encode() + b"\xff").ljust(BLOB_BYTES, b"\0")

    async def _assert(self, key: str) -> None:
        payload: dict[str, Any] = {"claim_type": "fact", "statement": f"{key} of {self._tenant}"}
        quoted = None
        if self._artifacts:
            artifact, body = self._artifacts[int(self._random.random() * len(self._artifacts))]
            quoted = body[:9]
            payload["evidence"] = [
                {
                    "artifact_id": artifact.entity_id,
                    "revision_id": artifact.revision_id,
                    "start_byte": 0,
                    "end_byte": len(quoted),
                }
            ]
        self._claims.append(await self._decided(key, "claim.assert", payload, "claim_id", quoted=quoted))

    async def _revise_twice(self, key: str, claim: Written) -> None:
        """Two revisions that begin with the same one: exactly one of them is accepted."""

        async def revised(statement: str) -> Written | None:
            payload = {"claim_id": claim.entity_id, "if_revision": claim.revision_id, "statement": statement}
            return await self._outcome(statement, "claim.revise", payload, "claim_id")

        outcomes = await asyncio.gather(*(revised(f"{key} instead, {number}") for number in range(2)))
        assert outcomes.count(None) == 1, f"W1: two revisions of {claim} were answered {outcomes}"

    async def _twice(self, key: str) -> None:
        """A client that lost patience sends the same request to two apis at once."""
        payload = {"claim_type": "fact", "statement": f"{key} of {self._tenant}"}
        both = (self._decided(key, "claim.assert", payload, "claim_id") for _ in range(2))
        first, second = await asyncio.gather(*both)
        assert first == second, f"W1: {key} was done twice"
        self._claims.append(first)

    async def _repeat(self, claim: Written) -> None:
        """An acknowledged request, sent again, gets the same answer."""
        if claim.quoted is not None:
            return
        payload = {"claim_type": "fact", "statement": f"{claim.key} of {self._tenant}"}
        again = await self._decided(claim.key, "claim.assert", payload, "claim_id")
        assert again == claim

    async def _decided(
        self, key: str, operation: str, payload: Mapping[str, Any], entity: str, *, quoted: bytes | None = None
    ) -> Written:
        written = await self._outcome(key, operation, payload, entity, quoted=quoted)
        assert written is not None, f"{operation} {key} met a conflict"
        return written

    async def _outcome(
        self, key: str, operation: str, payload: Mapping[str, Any], entity: str, *, quoted: bytes | None = None
    ) -> Written | None:
        """Once it is decided; `None` for a conflict. The identical request is sent until then."""
        while True:
            reply = await self._call(operation, payload, key=key)
            if reply is not None and reply.status == CONFLICT:
                return None
            if reply is not None and reply.status == HTTPStatus.OK:
                result = reply.envelope["result"]
                revision_id, commit_seq = result["revision_id"], reply.envelope["commit_seq"]
                written = Written(key, commit_seq, result[entity], revision_id, quoted)
                self._world.judge.acknowledged(self._tenant, written)
                return written
            await asyncio.sleep(RETRY_SECONDS * self._random.random())

    async def _call(
        self, operation: str, payload: Mapping[str, Any], *, key: str | None = None, strong: bool = False
    ) -> Reply | None:
        """`None` when no answer came. The wait for it is the client's, the work the api's."""
        api = self._apis[int(self._random.random() * len(self._apis))]
        request = _request(operation, payload, key)
        calling = api.process.task(
            api.service.call(self._tenant, request, wait_seconds=WRITE_WAIT_SECONDS, strong=strong)
        )
        if not (await asyncio.wait((calling,), timeout=CALL_SECONDS_MAX))[0]:
            self._world.trace.note(self.process, f"{operation} {key} has no answer")
            return None
        reply = calling.result()
        error = reply.envelope.get("error")
        self._world.trace.note(
            self.process, f"{operation} {key}: {error['code'] if error else reply.envelope.get('commit_seq')}"
        )
        if error is not None:
            expected = error["retryable"] or GIVEN_UP in error["message"] or error["code"] == Code.REVISION_CONFLICT
            assert expected, f"{operation} {key} was refused: {error}"
        return reply

    # --- reading ------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Either what it wrote itself, or everything; never older than what it knows of."""
        if self._claims and self._random.random() < 0.5:
            await self._get(self._claims[int(self._random.random() * len(self._claims))])
        else:
            await self._look_at_everything()

    async def _get(self, claim: Written) -> None:
        reply = await self._call("claim.get", {"claim_id": claim.entity_id}, strong=self._random.random() < 0.3)
        if reply is None or reply.status != HTTPStatus.OK:
            return
        assert claim.key in reply.envelope["result"]["statement"], f"W1: {claim} is {reply.envelope}"
        assert reply.snapshot_commit_seq is not None
        assert claim.commit_seq <= reply.snapshot_commit_seq <= self._world.judge.record(self._tenant).commit_seq, "W3"

    async def _look_at_everything(self) -> None:
        judge: Judge = self._world.judge
        api = self._apis[int(self._random.random() * len(self._apis))]
        least = judge.record(self._tenant).commit_seq

        async def look() -> State | None:
            try:
                state, _ = await api.service.snapshot(self._tenant, State.of)
            except MemoreeError as error:
                assert error.code in (Code.INDEX_NOT_READY, Code.TRANSPORT_ERROR), error
                return None
            except ObjectStoreError:
                return None
            judge.shown(self._tenant, state, least=least)
            return state

        looking = api.process.task(look())
        if (await asyncio.wait((looking,), timeout=CALL_SECONDS_MAX))[0]:
            looking.result()


class ApiDeaths:
    """Each time, another process takes the place of one that was killed; it knows nothing."""

    def __init__(self, world: World, host: ApiHost) -> None:
        self._world, self._host = world, host
        self._left = world.plan.api_deaths
        self.is_over = False

    def begin(self) -> None:
        self._host.start()
        if self._left:
            self._left -= 1
            callbacks = 1 + int(self._world.random.expovariate(1 / self._world.plan.callbacks_between))
            self._host.process.after(callbacks, self._die)

    def _die(self) -> None:
        if self.is_over:
            return
        self._world.trace.note(self._host.process, "is killed")
        self._host.kill()
        self._world.loop.in_world(self._world.random.random(), self.begin)


class Collector:
    """Collects garbage with the job that a deployment runs, again and again."""

    def __init__(self, world: World) -> None:
        self._world, self._random = world, world.random
        self._host = ApiHost(world)

    def start(self) -> None:
        self._host.start()
        self._meet_a_disaster()
        for tenant in self._world.tenants:
            self._host.process.task(self._collect(tenant))

    def _meet_a_disaster(self) -> None:
        process, luck = self._host.process, self._random.random()
        callbacks = 1 + int(self._random.expovariate(1 / self._world.plan.callbacks_between))
        if luck < 0.3:
            process.after(callbacks, self._die)
        elif luck < 0.5:
            process.after(callbacks, self._freeze)
        else:
            process.before_request = self._before_delete

    def _before_delete(self, verb: str, key: str) -> bool:
        """What was found to be garbage may be wanted again by the time that the delete is sent."""
        if verb != "DELETE":
            return False
        self._host.process.before_request = None
        self._freeze(seconds=limits.COLLECT_DELETE_EXPIRES_SECONDS)
        return True

    def _die(self) -> None:
        self._world.trace.note(self._host.process, "is killed")
        self._host.kill()
        self._world.loop.in_world(self._random.random() * 5, self.start)

    def _freeze(self, seconds: float = 20.0) -> None:
        self._world.trace.note(self._host.process, "is frozen")
        self._host.process.freeze()
        self._world.loop.in_world(self._random.random() * seconds, self._host.process.thaw)

    async def _collect(self, tenant: str) -> None:
        send = self._world.bucket.presigning_client(self._host.process).send_presigned
        while True:
            await asyncio.sleep(self._random.random())
            with suppress(MemoreeError, ObjectStoreError):
                collection = await collect(self._tenancy(tenant), Grace(0.0, 0.0), send=send)
                self._world.trace.note(self._host.process, f"collected {collection.to_wire()}")
            await asyncio.sleep(limits.COLLECT_RELEASE_SECONDS_MIN)

    def _tenancy(self, tenant: str) -> ReplicatedTenancy:
        process = self._host.process
        store = self._world.bucket.presigning_client(process)
        return ReplicatedTenancy(tenant, store, self._host.service, self._world.clock(process))


class Disasters:
    """What one writer's host meets: it is killed, frozen for longer than its lease, or stopped in good order."""

    def __init__(self, world: World, host: WriterHost) -> None:
        self._world, self.host = world, host
        self._random = world.random
        self._left = world.plan.disasters
        self.is_over = False

    @property
    def children_uploading(self) -> int:
        """Of a writer that lives; what the dead left behind ends by itself."""
        return sum(child.is_uploading for child in self.host.children) if self.host.process.is_alive else 0

    def begin(self, *, supervised: bool) -> None:
        self.host.start(supervised=supervised, on_failure=self._restart_soon)
        self._prepare()

    def _prepare(self) -> None:
        if not self._left or self.is_over:
            return
        self._left -= 1
        if self._random.random() < self._world.plan.at_head_share:
            self.host.process.before_request = self._at_head(moves=int(self._random.expovariate(1 / MOVES_BETWEEN)))
            return
        callbacks = 1 + int(self._random.expovariate(1 / self._world.plan.callbacks_between))
        self.host.process.after(callbacks, self._strike)

    def _at_head(self, moves: int) -> Callable[[str, str], bool]:
        """Strike when so many moves of head are done and the next is decided on, but not sent."""

        def strikes(verb: str, key: str) -> bool:
            nonlocal moves
            if verb != "PUT" or not key.endswith("/head.json"):
                return False
            moves -= 1
            if moves >= 0:
                return False
            self.host.process.before_request = None
            self._strike()
            return True

        return strikes

    def _strike(self) -> None:
        if self.is_over:
            return
        luck = self._random.random()
        process = self.host.process
        if luck < 0.45:
            self._world.trace.note(process, "is killed")
            self.host.kill()
            self._world.loop.in_world(self._random.random() * 2, self._restart, self._random.random() < 0.5)
        elif luck < 0.9:
            self._world.trace.note(process, "is frozen")
            process.freeze()
            children = [child for child in self.host.children if self._random.random() < 0.4]
            for child in children:
                child.freeze()
            self._world.loop.in_world(1.0 + self._random.random() * 9.0, self._thaw, children)
        else:
            self._world.trace.note(process, "is told to stop")
            self.host.stop()
            self._world.loop.in_world(self._random.random() * 8.0, self._replace)

    def _restart_soon(self) -> None:
        self._world.loop.in_world(1.0, self._restart, True)

    def _restart(self, supervised: bool) -> None:
        self.begin(supervised=supervised)

    def _replace(self) -> None:
        """Another is started when this one has ended, or is killed for taking too long."""
        if not self.host.has_ended:
            self.host.kill()
        self.begin(supervised=False)

    def _thaw(self, children: list[Any]) -> None:
        self._world.trace.note(self.host.process, "is thawed")
        for child in children:
            child.thaw()
        self.host.process.thaw()
        self._prepare()


def refused_without_head(world: World, tenant: str, apis: list[ApiHost], writer: WriterHost) -> asyncio.Task[None]:
    """Ask every api and a writer for a tenant that has a past and no head."""
    process = world.host("client")

    async def ask() -> None:
        await asyncio.sleep(RESTARTED_SECONDS)
        for api in apis:
            reply = await api.process.task(api.service.call(tenant, _request("conflict.list", {}, None), strong=True))
            error = reply.envelope.get("error")
            assert error is not None and error["code"] == "INTEGRITY_ERROR", f"W3: {reply.envelope} without a head"
        try:
            await writer.process.task(Reign.begin(tenant, writer.environment))
        except MemoreeError as error:
            assert error.code is Code.INTEGRITY_ERROR, error
        else:
            raise AssertionError("W4: a tenant that has a past was born")

    return process.task(ask())


def _request(operation: str, payload: Mapping[str, Any], key: str | None) -> Request:
    body: dict[str, Any] = {"request_id": "req_1", "op": operation, "context": CONTEXT, "input": payload}
    if key is not None:
        body["idempotency_key"] = key
    envelope = decode(orjson.dumps(body))
    return Request(envelope, validate(envelope))


def _base64(body: bytes) -> str:
    return base64.b64encode(body).decode()
