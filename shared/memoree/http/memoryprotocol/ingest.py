"""`POST /v1/ingest`: one episode in, all or nothing (MemoryProtocol §5)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from starlette.types import Receive, Scope, Send

from memoree.envelope import WireModel
from memoree.episodes.ids import ulid
from memoree.http.answers import Answer, json_answer
from memoree.http.gate import Admission
from memoree.http.memoryprotocol.door import Endpoint
from memoree.operations.episodes import INGEST


class IngestBody(WireModel):
    """The request body; what is to be stored is judged where it is stored."""

    id: Annotated[str, AfterValidator(ulid)] | None = None
    source: str
    content: str
    t_ref: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class IngestEndpoint(Endpoint):
    scope_name = "ingest"

    async def serve(self, scope: Scope, receive: Receive, send: Send, admission: Admission) -> Answer:
        wanted = await self.body(scope, receive, IngestBody)
        episode = {
            **wanted.model_dump(exclude={"content"}),
            "content": {"type": "text", "data": wanted.content},
            "actor": admission.principal.agent,
        }
        key, tenant = self.key(scope), admission.principal.tenant
        with self.door.measured.ingest(tenant):
            stored = await self.door.ask(admission.principal, INGEST, episode, key=key)
            lag = await self.door.services.service.queue_lag(tenant)
        return json_answer({"lsn": stored.value["lsn"], "queue_lag_warn": lag}, headers=stored.headers)
