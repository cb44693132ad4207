"""Options that every test folder shares."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("whatever the machine does meanwhile", deadline=None)
settings.load_profile("whatever the machine does meanwhile")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--door",
        default="embedded",
        metavar="embedded|asgi|http:URL",
        help="what the contract tests talk to: a service in this process, the same behind its HTTP application, or a "
        "running one behind HTTP "
        "(a token, if it asks for one, in MEMOREE_TEST_TOKEN)",
    )
