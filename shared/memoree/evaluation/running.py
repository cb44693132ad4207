"""One run: store the seeds, ask every case on every surface, judge the answers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memoree.assembly import embedded_facts, embedded_service
from memoree.client.request import Endpoint, Outgoing
from memoree.embedded import EmbeddedService
from memoree.evaluation.asking import Asker
from memoree.evaluation.corpus import Corpus
from memoree.evaluation.exactness import Citations
from memoree.evaluation.judging import Judgement, judge
from memoree.evaluation.seeding import store_seeds
from memoree.evaluation.surfaces import ask_everywhere


def run_corpus(endpoint: Endpoint, corpus: Corpus) -> list[Judgement]:
    """The judgements, in the order of the cases. Raises what a seed or a question is refused with."""
    asker = Asker(endpoint)
    stored = store_seeds(asker, corpus.seeds)
    citations = Citations(asker)
    return [judge(case, ask_everywhere(asker, case), stored, citations) for case in corpus.cases]


@contextmanager
def temporary_endpoint() -> Iterator[Endpoint]:
    """An embedded store of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="memoree-eval-") as directory:
        service = embedded_service(Path(directory) / "store", facts=embedded_facts(running=False))
        try:
            yield _Held(service)
        finally:
            service.close_sync()


class _Held:
    """A service that stays open from request to request."""

    def __init__(self, service: EmbeddedService) -> None:
        self._service = service

    def exchange(self, request: Outgoing) -> bytes:
        return self._service.call_bytes(request.body)
