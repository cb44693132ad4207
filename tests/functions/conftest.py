from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from functions_support import EventSource, Remaining, Site

from memoree.objects.s3 import S3Settings
from memoree.serverless.api import ApiFunction
from memoree.serverless.writer import WriterFunction
from stack_support import seaweedfs

__all__ = ["seaweedfs"]

Json = dict[str, object]


@pytest.fixture(scope="session")
def shared_site(seaweedfs: S3Settings, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("functions"), seaweedfs)


@pytest.fixture
def site(shared_site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A deployment of functions, described to them by the environment as on Lambda; the test's own tenant of it."""
    for name, value in shared_site.variables.items():
        monkeypatch.setenv(name, value)
    return replace(shared_site, tenant=f"t-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="session")
def containers() -> Iterator[list[WriterFunction]]:
    """Two containers of the writer. Opening one takes seconds on this store: it proves the store's promises."""
    writers = [WriterFunction(), WriterFunction()]
    yield writers
    for writer in writers:
        writer.container.close()


@pytest.fixture(scope="module")
def served_site(seaweedfs: S3Settings, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("served"), seaweedfs)


@pytest.fixture(scope="module")
def running(served_site: Site) -> Iterator[Callable[..., Json]]:
    """The api's handler, with a writer behind it that takes what comes to the queue."""
    with pytest.MonkeyPatch.context() as variables, ExitStack() as stack:
        for name, value in served_site.variables.items():
            variables.setenv(name, value)
        served_site.write_tokens()
        api, writer = ApiFunction(), WriterFunction()
        stack.callback(api.container.close)
        stack.enter_context(EventSource(served_site, writer, writer.container.close))
        yield lambda event: api(event, Remaining())
