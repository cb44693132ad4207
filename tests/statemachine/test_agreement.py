"""The service and a plain in-memory model of the contract agree on every answer and on the final state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.deployment import Deployment
from e2e.shared_stack import fresh_tenant

from .doors import embedded, tenants_of
from .explore import Exploration

SEED = 20_260_302
REQUESTS_MIN = 1500
PROGRAM_STEPS = 120
STACK_REQUESTS_MIN = 300
STACK_PROGRAM_STEPS = 30


@pytest.mark.fault_class(9)
@pytest.mark.fault_class(24)
@pytest.mark.fault_class(42)
@pytest.mark.fault_class(44)
@pytest.mark.proves("machine-64", "machine-65")
def test_the_embedded_service_answers_as_the_model_does() -> None:
    exploration = Exploration(embedded, SEED, PROGRAM_STEPS)
    exploration.run(REQUESTS_MIN)
    exploration.complete()


@pytest.mark.stack
def test_the_stack_answers_as_the_model_does(stack: Deployment) -> None:
    def tokens() -> Iterator[str]:
        while True:
            yield stack.tokens[fresh_tenant()]

    exploration = Exploration(tenants_of(stack.url, tokens()), SEED, STACK_PROGRAM_STEPS, shrink=False)
    exploration.run(STACK_REQUESTS_MIN)
    assert not exploration.tally.unforeseen()
