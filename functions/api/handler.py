"""The api on AWS Lambda: `functions.api.handler.handler`, behind a function URL, an API Gateway or a load balancer."""

from __future__ import annotations

from memoree.serverless.api import ApiFunction

handler = ApiFunction()
