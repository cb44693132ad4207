"""The writer on AWS Lambda: `functions.writer.handler.handler`, behind the SQS queue of commands."""

from __future__ import annotations

from memoree.serverless.writer import WriterFunction

handler = WriterFunction()
