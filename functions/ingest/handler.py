"""The ingest worker on AWS Lambda: `functions.ingest.handler.handler`, behind the SQS queue of connectors."""

from __future__ import annotations

from memoree.serverless.ingest import IngestFunction

handler = IngestFunction()
