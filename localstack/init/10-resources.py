"""What a deployment has in SQS, S3 and EventBridge Scheduler, made on an emulator; may run again at any time.

LocalStack runs this once it is ready (`compose.yaml`), and `localstack/start` beside the emulator that needs no Docker.
"""

from __future__ import annotations

import json
import os

import boto3
from botocore.exceptions import ClientError

NAME = os.environ.get("MEMOREE_NAME", "memoree")
ENDPOINT_URL = os.environ.get("AWS_ENDPOINT_URL", "http://localhost:4566")
ACCOUNT = "000000000000"
CREDENTIALS = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
QUEUES = ("commands", "ingest")
VISIBILITY_SECONDS = 720
RETENTION_SECONDS = 14 * 24 * 3600
RECEIVE_COUNT_MAX = 1000
SCHEDULES = {
    "migrate": ("writer", "rate(1 hour)"),
    "backup": ("backup", "cron(15 2 * * ? *)"),
    "verify": ("verify", "cron(15 4 * * ? *)"),
    "gc": ("gc", "cron(15 5 * * ? *)"),
}
"""Job → function and time, as in infra/template.yaml."""


def main() -> None:
    s3 = _client("s3")
    try:
        s3.head_bucket(Bucket=NAME)
    except ClientError:
        s3.create_bucket(Bucket=NAME)
    sqs = _client("sqs")
    for queue in QUEUES:
        dead = _ensure_queue(sqs, f"{NAME}-{queue}-dead.fifo", {})
        arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": RECEIVE_COUNT_MAX})
        _ensure_queue(sqs, f"{NAME}-{queue}.fifo", {"RedrivePolicy": redrive})
    scheduler = _client("scheduler")
    for job, (function, times) in SCHEDULES.items():
        _ensure_schedule(scheduler, f"{NAME}-{job}", f"{NAME}-{function}", times, {"job": job})


def _ensure_queue(sqs, name: str, more: dict[str, str]) -> str:  # type: ignore[no-untyped-def]  # boto3 has no types
    """Created bare: an existing queue with other attributes refuses a creation that names any of them."""
    url: str = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
    attributes = {
        "ContentBasedDeduplication": "false",
        "MaximumMessageSize": "262144",
        "MessageRetentionPeriod": str(RETENTION_SECONDS),
        "VisibilityTimeout": str(VISIBILITY_SECONDS),
    }
    sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes | more)
    return url


def _ensure_schedule(scheduler, name: str, function: str, times: str, event: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    schedule = {
        "Name": name,
        "ScheduleExpression": times,
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:{function}",
            "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/{NAME}-schedules",
            "Input": json.dumps(event),
        },
    }
    try:
        scheduler.create_schedule(**schedule)
    except scheduler.exceptions.ConflictException:
        scheduler.update_schedule(**schedule)


def _client(service: str):  # type: ignore[no-untyped-def]
    return boto3.client(service, endpoint_url=ENDPOINT_URL, **CREDENTIALS)


if __name__ == "__main__":
    main()
