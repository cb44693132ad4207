"""The api of a replicated deployment under any ASGI server: `uvicorn functions.api.app:app`."""

from __future__ import annotations

import os

from memoree.assembly import replicated_service
from memoree.http.app import create_app
from memoree.http.settings import HttpSettings
from memoree.settings import StackSettings

app = create_app(
    lambda: replicated_service(StackSettings(), authorization=True),
    HttpSettings.from_environment(os.environ, tokens_required=True),
)
