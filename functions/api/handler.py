"""The api on AWS Lambda: `functions.api.handler.handler`, behind a function URL or an API Gateway.

The service is opened once per container and stays at module level; Mangum runs every event on the same loop.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack

from mangum import Mangum

from memoree.assembly import replicated_service
from memoree.http.app import create_app
from memoree.http.settings import HttpSettings
from memoree.settings import StackSettings

loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
opened = AsyncExitStack()
service = loop.run_until_complete(opened.enter_async_context(replicated_service(StackSettings(), authorization=True)))
app = create_app(service, HttpSettings.from_environment(os.environ, tokens_required=True))
handler = Mangum(app, lifespan="off")
