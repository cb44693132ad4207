"""`GET /v1/episode/{id}`: one episode as it is now (MemoryProtocol §10.1)."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from memoree.episodes.ids import ulid
from memoree.errors import Code, MemoreeError
from memoree.http.answers import Answer, json_answer
from memoree.http.gate import Admission
from memoree.http.memoryprotocol.door import Endpoint
from memoree.http.memoryprotocol.refusals import refuse
from memoree.operations.episodes import GET


class EpisodeEndpoint(Endpoint):
    scope_name = "recall"

    async def serve(self, scope: Scope, receive: Receive, send: Send, admission: Admission) -> Answer:
        try:
            episode_id = ulid(scope["path_params"]["episode_id"])
        except ValueError as error:
            refuse(400, "invalid_episode_id", f"the id of an episode {error}")
        try:
            with self.door.measured.handled():
                found = await self.door.ask(admission.principal, GET, {"id": episode_id})
        except MemoreeError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            refuse(404, "episode_not_found", error.message)
        return json_answer({"scope": admission.principal.tenant, "t_ref": None, **found.value}, headers=found.headers)
