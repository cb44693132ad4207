"""The template says what the writer's correctness and the operator's safety need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cfnlint.api import lint_all
from cfnlint.decode import decode

from memoree import limits
from memoree.queue import MESSAGE_BYTES_MAX, RECEIVE_COUNT_MAX

TEMPLATE = Path(__file__).parents[2] / "infra" / "storage.yaml"


@pytest.fixture(scope="module")
def resources() -> dict[str, Any]:
    template, problems = decode(str(TEMPLATE))
    assert not problems
    found: dict[str, Any] = template["Resources"]
    return found


def test_the_template_is_valid_cloudformation() -> None:
    problems = [problem for problem in lint_all(TEMPLATE.read_text()) if not problem.rule.id.startswith("I")]
    assert [str(problem) for problem in problems] == []


def test_queues_are_fifo_and_hold_what_an_api_sends(resources: dict[str, Any]) -> None:
    commands, dead = resources["Commands"]["Properties"], resources["DeadLetters"]["Properties"]
    assert commands["FifoQueue"] and dead["FifoQueue"]
    assert commands["QueueName"]["Fn::Sub"].endswith(".fifo") and dead["QueueName"]["Fn::Sub"].endswith(".fifo")
    assert commands["MaximumMessageSize"] == MESSAGE_BYTES_MAX > limits.COMMAND_BYTES_MAX
    assert commands["RedrivePolicy"]["maxReceiveCount"] == RECEIVE_COUNT_MAX
    assert commands["VisibilityTimeout"] == limits.VISIBILITY_SECONDS


def test_the_row_of_an_attempt_outlives_queue_and_dead_letters(resources: dict[str, Any]) -> None:
    kept = sum(resources[name]["Properties"]["MessageRetentionPeriod"] for name in ("Commands", "DeadLetters"))
    assert kept < limits.ATTEMPT_RETENTION_SECONDS


def test_nothing_durable_is_deleted_with_the_stack(resources: dict[str, Any]) -> None:
    durable = [resources[name] for name in ("Bucket", "Commands", "DeadLetters")]
    assert all(each["DeletionPolicy"] == each["UpdateReplacePolicy"] == "Retain" for each in durable)


def test_the_bucket_is_private_and_tls_only(resources: dict[str, Any]) -> None:
    assert all(resources["Bucket"]["Properties"]["PublicAccessBlockConfiguration"].values())
    statement = resources["BucketPolicy"]["Properties"]["PolicyDocument"]["Statement"][0]
    assert statement["Effect"] == "Deny"
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_only_unfinished_writes_end_by_age_and_none_that_is_still_under_way(resources: dict[str, Any]) -> None:
    (rule,) = resources["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    assert set(rule) == {"Id", "Status", "AbortIncompleteMultipartUpload"}, "no rule may expire an object"
    days = rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"]
    assert days * 24 * 3600 > limits.UPLOAD_REMOVAL_SECONDS
