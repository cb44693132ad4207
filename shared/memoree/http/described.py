"""What the door says about itself, to anyone: `/openapi.json`, `/docs`, `/v1/schema`. It depends on the program and
its settings only, never on what is stored, so it needs no token and spends nothing of anybody's rate."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from starlette.types import Receive, Scope, Send

from memoree.http import docs, openapi
from memoree.http.answers import Answer, json_answer
from memoree.http.conditional import revalidated
from memoree.http.observation import CODE_OK, observation
from memoree.http.settings import HttpSettings
from memoree.operations.schema import bundle


class DescribedEndpoint:
    """One text, made when somebody first asks for it."""

    def __init__(self, make: Callable[[], Answer]) -> None:
        self._make = make

    @cached_property
    def _answer(self) -> Answer:
        return self._make()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        observation(scope).code = CODE_OK
        await revalidated(scope, self._answer).send(send)


class Descriptions:
    """The three texts of one application."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self.openapi = DescribedEndpoint(lambda: json_answer(self._document))
        self.docs = DescribedEndpoint(self._page)
        self.schema = DescribedEndpoint(lambda: json_answer(bundle().model_dump(mode="json")))

    @cached_property
    def _document(self) -> dict[str, object]:
        settings = self._settings
        metrics = settings.metrics_on_main_port or not settings.metrics
        return openapi.document(authorization=settings.tokens_file is not None, metrics=metrics)

    def _page(self) -> Answer:
        policy = ((b"content-security-policy", docs.CONTENT_SECURITY_POLICY),)
        return Answer(200, docs.page(self._document).encode(), policy, b"text/html; charset=utf-8")
