"""The template says what the writer's correctness, the operator's safety and the functions' code need."""

from __future__ import annotations

import ast
import copy
import fcntl
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cfnlint.api import lint_all
from cfnlint.decode import decode

from memoree import limits
from memoree.http.settings import ENVIRONMENT_PREFIX
from memoree.objects.s3 import PASSING_TAG
from memoree.queue import MESSAGE_BYTES_MAX, RECEIVE_COUNT_MAX
from memoree.serverless.container import SETTLING_SECONDS
from memoree.settings import StackSettings

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "infra" / "template.yaml"
FUNCTIONS = ("Api", "Writer", "Ingest", "Backup", "Verify", "Gc")
QUEUE_OF = {"Writer": "Commands", "Ingest": "Ingestion"}
VISIBILITY_OVER_TIMEOUT = 6
"""What AWS asks for, so that a message does not return while a function still works on it."""


@pytest.fixture(scope="module")
def written() -> Json:
    """The SAM template as it stands in the file."""
    template, problems = decode(str(TEMPLATE))
    assert not problems
    document: Json = json.loads(json.dumps(template))
    return document


@pytest.fixture(scope="module")
def translated(written: Json, tmp_path_factory: pytest.TempPathFactory) -> Json:
    """What AWS makes of it. Much that is wrong with the one shows only in the other."""
    with (tmp_path_factory.getbasetemp().parent / "install-lambda.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        subprocess.run([ROOT / "scripts/install-lambda"], check=True)
    done = subprocess.run(
        [ROOT / ".venv-lambda/bin/python", Path(__file__).with_name("translate.py")],
        input=json.dumps(written),
        capture_output=True,
        text=True,
        env={**os.environ, "AWS_DEFAULT_REGION": "eu-central-1"},
    )
    assert done.returncode == 0, done.stderr
    document: Json = json.loads(done.stdout)
    return document


@pytest.fixture(scope="module")
def resources(translated: Json) -> Json:
    found: Json = translated["Resources"]
    return found


def properties(resources: Json, name: str) -> Json:
    found: Json = resources[name]["Properties"]
    return found


def of_type(resources: Json, kind: str) -> Iterator[tuple[str, Json]]:
    return ((name, each["Properties"]) for name, each in resources.items() if each["Type"] == kind)


# --- as a whole -------------------------------------------------------------------------------------------------


@pytest.mark.proves("operations-69")
def test_the_template_is_valid_as_it_is_written() -> None:
    assert _problems(TEMPLATE.read_text()) == []


@pytest.mark.proves("operations-69")
def test_what_aws_makes_of_it_is_valid(translated: Json) -> None:
    assert _problems(json.dumps(translated)) == []


@pytest.mark.proves("operations-69")
def test_mistakes_that_the_written_form_hides_are_seen_in_the_translated_one(translated: Json) -> None:
    """So that the check above is known to bite."""
    broken = copy.deepcopy(translated)
    source = properties(broken["Resources"], "IngestQueue")
    source["FunctionResponseTypes"] = ["ReportBatchItemFailure"]
    source["ScalingConfig"]["MaximumConcurrency"] = 1
    found = "\n".join(_problems(json.dumps(broken)))
    assert "'ReportBatchItemFailure' is not one of" in found
    assert "1 is less than the minimum of 2" in found


def _problems(template: str) -> list[str]:
    # W1020: the translator writes `Fn::Sub` around texts without variables.
    found = lint_all(template)
    return [str(each) for each in found if not each.rule.id.startswith("I") and each.rule.id != "W1020"]


# --- what is kept -----------------------------------------------------------------------------------------------


@pytest.mark.proves("operations-70")
@pytest.mark.parametrize("name", ["Commands", "Ingestion"])
def test_queues_are_fifo_and_hold_what_is_sent(resources: Json, name: str) -> None:
    queue, dead = properties(resources, name), properties(resources, f"{name}Dead")
    assert queue["FifoQueue"] and dead["FifoQueue"]
    assert queue["QueueName"]["Fn::Sub"].endswith(".fifo") and dead["QueueName"]["Fn::Sub"].endswith(".fifo")
    assert queue["MaximumMessageSize"] == MESSAGE_BYTES_MAX > limits.COMMAND_BYTES_MAX
    assert queue["ContentBasedDeduplication"] is False
    assert queue["RedrivePolicy"] == {
        "deadLetterTargetArn": {"Fn::GetAtt": [f"{name}Dead", "Arn"]},
        "maxReceiveCount": RECEIVE_COUNT_MAX,
    }


@pytest.mark.proves("operations-70")
def test_the_row_of_an_attempt_outlives_queue_and_dead_letters(resources: Json) -> None:
    kept = sum(properties(resources, name)["MessageRetentionPeriod"] for name in ("Commands", "CommandsDead"))
    assert kept < limits.ATTEMPT_RETENTION_SECONDS


@pytest.mark.proves("operations-70")
def test_nothing_durable_is_deleted_with_the_stack(resources: Json) -> None:
    durable = ["Bucket", *(name for name, _ in of_type(resources, "AWS::SQS::Queue"))]
    assert len(durable) == 5
    assert all(
        resources[name]["DeletionPolicy"] == resources[name]["UpdateReplacePolicy"] == "Retain" for name in durable
    )


@pytest.mark.proves("operations-70")
def test_the_bucket_is_private_encrypted_unversioned_and_tls_only(resources: Json) -> None:
    bucket = properties(resources, "Bucket")
    assert all(bucket["PublicAccessBlockConfiguration"].values())
    assert "VersioningConfiguration" not in bucket, "the change files are a log already; erasure must erase"
    assert bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    (statement,) = properties(resources, "BucketPolicy")["PolicyDocument"]["Statement"]
    assert statement["Effect"] == "Deny"
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


@pytest.mark.proves("operations-70")
def test_only_what_passes_anyway_ends_by_age_and_nothing_that_is_still_under_way(resources: Json) -> None:
    for rule in properties(resources, "Bucket")["LifecycleConfiguration"]["Rules"]:
        assert rule["Status"] == "Enabled"
        if "AbortIncompleteMultipartUpload" in rule:
            days = rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"]
            assert days * 24 * 3600 > limits.UPLOAD_REMOVAL_SECONDS
            continue
        assert rule["ExpirationInDays"] * 24 * 3600 > limits.FUNCTION_ANSWER_SECONDS
        tags = [(tag["Key"], tag["Value"]) for tag in rule.get("TagFilters", ())]
        assert tags == [PASSING_TAG] or rule.get("Prefix") in ("canaries/", "selftest/"), "it would expire data"


# --- functions --------------------------------------------------------------------------------------------------


@pytest.mark.proves("operations-70")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_handler_is_a_name_in_a_module_that_is_there(resources: Json, name: str) -> None:
    *module, attribute = properties(resources, name)["Handler"].split(".")
    source = ROOT.joinpath(*module).with_suffix(".py")
    assigned = [each for each in ast.parse(source.read_text()).body if isinstance(each, ast.Assign)]
    assert attribute in {target.id for each in assigned for target in each.targets if isinstance(target, ast.Name)}


@pytest.mark.proves("operations-70")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_runs_the_code_of_its_folder_with_both_layers(written: Json, resources: Json, name: str) -> None:
    assert properties(written["Resources"], name)["CodeUri"] == f"../build/functions/{name.lower()}.zip"
    function = properties(resources, name)
    assert len(function["Layers"]) == 2
    assert function["Runtime"] == {"Ref": "PythonRuntime"} and function["Architectures"] == [{"Ref": "Architecture"}]


@pytest.mark.proves("operations-70")
def test_layers_and_functions_are_of_one_architecture_and_runtime(resources: Json) -> None:
    layers = list(of_type(resources, "AWS::Lambda::LayerVersion"))
    assert len(layers) == 2
    for _, layer in layers:
        assert layer["CompatibleArchitectures"] == [{"Ref": "Architecture"}]
        assert layer["CompatibleRuntimes"] == [{"Ref": "PythonRuntime"}]


@pytest.mark.proves("operations-70")
@pytest.mark.parametrize(("function", "queue"), QUEUE_OF.items())
def test_a_message_stays_hidden_for_six_times_as_long_as_a_function_may_work(
    resources: Json, function: str, queue: str
) -> None:
    timeout = properties(resources, function)["Timeout"]
    assert properties(resources, queue)["VisibilityTimeout"] >= VISIBILITY_OVER_TIMEOUT * timeout
    assert timeout > SETTLING_SECONDS


@pytest.mark.proves("operations-70")
@pytest.mark.parametrize(("function", "queue"), QUEUE_OF.items())
def test_a_batch_reports_its_failures_one_by_one(written: Json, resources: Json, function: str, queue: str) -> None:
    source = properties(resources, f"{function}Queue")
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert source["EventSourceArn"] == {"Fn::GetAtt": [queue, "Arn"]}
    assert source["BatchSize"] == 10, "all that a FIFO queue gives"
    concurrency = source["ScalingConfig"]["MaximumConcurrency"]
    smallest = concurrency if isinstance(concurrency, int) else written["Parameters"][concurrency["Ref"]]["MinValue"]
    assert smallest >= 2, "SQS takes no less; the writer's fence is head, not this"
    assert "ReservedConcurrentExecutions" not in properties(resources, function), "throttled receives count as tries"


@pytest.mark.proves("operations-70")
def test_the_api_answers_before_the_gateway_gives_up(resources: Json) -> None:
    timeout = properties(resources, "Api")["Timeout"]
    assert limits.WRITE_WAIT_SECONDS_MAX < timeout < 30


@pytest.mark.proves("operations-70")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_variables_are_ones_that_some_code_reads_and_all_that_it_needs(resources: Json, name: str) -> None:
    variables = set(properties(resources, name)["Environment"]["Variables"])
    known = {f"MEMOREE_{field.upper()}" for field in StackSettings.model_fields} | _read_by_the_api()
    assert variables <= known | {"MEMOREE_LOG_LEVEL"}
    needed = {f"MEMOREE_{field.upper()}" for field, info in StackSettings.model_fields.items() if info.is_required()}
    assert needed <= variables
    assert {"MEMOREE_REGION", "MEMOREE_DEAD_LETTER_URL"} <= variables, "their defaults suit no function"
    assert ("MEMOREE_TOKENS_SECRET" in variables) == (name in ("Api", "Ingest"))


def _read_by_the_api() -> set[str]:
    source = (ROOT / "shared/memoree/http/settings.py").read_text()
    return {f"{ENVIRONMENT_PREFIX}{name}" for name in re.findall(r'value\("([A-Z_]+)"\)', source)}


@pytest.mark.proves("operations-70")
@pytest.mark.parametrize(
    ("name", "job"), [("Writer", "migrate"), ("Backup", "backup"), ("Verify", "verify"), ("Gc", "gc")]
)
def test_every_job_has_a_schedule_that_names_it(resources: Json, name: str, job: str) -> None:
    targets = [
        schedule["Target"]
        for _, schedule in of_type(resources, "AWS::Scheduler::Schedule")
        if schedule["Target"]["Arn"] == {"Fn::GetAtt": [name, "Arn"]}
    ]
    assert [json.loads(target["Input"]) for target in targets] == [{"job": job}]


# --- rights -----------------------------------------------------------------------------------------------------


@pytest.mark.proves("operations-70")
def test_no_right_is_given_to_everything(resources: Json) -> None:
    """Below the one bucket a key's end may be open; nothing else may."""
    seen = 0
    for statement in _statements(resources):
        seen += 1
        for action in _listed(statement["Action"]):
            assert "*" not in action, statement
        for resource in _listed(statement["Resource"]):
            pattern = resource.get("Fn::Sub", "") if isinstance(resource, dict) else resource
            assert "*" not in pattern or pattern.startswith("${Bucket.Arn}/"), statement
            assert pattern != "${Bucket.Arn}/*", statement
    assert seen > 20
    assert not any("ManagedPolicyArns" in role for _, role in of_type(resources, "AWS::IAM::Role"))


@pytest.mark.proves("operations-70")
def test_only_the_writer_may_write_head_and_only_jobs_that_delete_may_delete_blobs(resources: Json) -> None:
    assert _who_may(resources, "s3:PutObject", "tenants/t/head.json") == {"Writer"}
    assert _who_may(resources, "s3:PutObject", "tenants/t/epochs/00000001.json") == {"Writer"}
    assert _who_may(resources, "s3:PutObject", "deleted/t.json") == set()
    assert _who_may(resources, "s3:GetObject", "deleted/t.json") == set(FUNCTIONS)
    assert _who_may(resources, "s3:PutObject", "tenants/t/erasures/e.json") == {"Writer"}
    assert _who_may(resources, "s3:DeleteObject", "tenants/t/blobs/b3/aa/aa") == {"Writer", "Gc"}
    assert _who_may(resources, "s3:PutObject", "tenants/t/backups/b/backup.json") == {"Writer", "Backup"}
    assert _who_may(resources, "s3:PutObject", "tenants/t/answers/a") == {"Writer", "Api"}


@pytest.mark.proves("operations-70")
def test_verification_changes_nothing(resources: Json) -> None:
    actions = {action for each in _role_statements(resources, "Verify") for action in _listed(each["Action"])}
    assert actions == {"s3:GetObject", "s3:ListBucket", "logs:CreateLogStream", "logs:PutLogEvents"}


@pytest.mark.proves("operations-70")
def test_only_the_doors_may_read_the_tokens(resources: Json) -> None:
    may = {
        name
        for name in FUNCTIONS
        for statement in _role_statements(resources, name)
        if "secretsmanager:GetSecretValue" in _listed(statement["Action"])
    }
    assert may == {"Api", "Ingest"}
    assert _who_may(resources, "s3:GetObject", "keys/tokens.json") == {"Api", "Ingest"}


@pytest.mark.proves("operations-70")
def test_only_the_api_may_change_the_tokens(resources: Json) -> None:
    assert _who_may(resources, "s3:PutObject", "keys/tokens.json") == {"Api"}
    assert _who_may(resources, "s3:DeleteObject", "keys/tokens.json") == set()


@pytest.mark.proves("operations-70", "tokens-1")
@pytest.mark.parametrize("secret", [True, False])
@pytest.mark.parametrize("name", ["Api", "Ingest"])
def test_the_tokens_come_from_one_place_and_there_is_a_right_to_no_other(
    resources: Json, name: str, secret: bool
) -> None:
    variables = _resolved(properties(resources, name)["Environment"]["Variables"], secret)
    place = "MEMOREE_TOKENS_SECRET" if secret else "MEMOREE_TOKENS_FILE"
    named = {key: value for key, value in variables.items() if "TOKENS" in key and value != _NO_VALUE}
    assert named == {place: {"Ref": "TokensSecretArn"} if secret else {"Fn::Sub": "s3://${Bucket}/keys/tokens.json"}}
    (right,) = [statement for statement in _resolved(_policy(resources, name), secret) if statement["Sid"] == "Tokens"]
    assert right["Resource"] == (
        {"Ref": "TokensSecretArn"} if secret else {"Fn::Sub": "${Bucket.Arn}/keys/tokens.json"}
    )


def _who_may(resources: Json, action: str, key: str) -> set[str]:
    return {
        name
        for name in FUNCTIONS
        for statement in _role_statements(resources, name)
        if action in _listed(statement["Action"])
        and any(_covers(resource, key) for resource in _listed(statement["Resource"]))
    }


def _covers(resource: Any, key: str) -> bool:
    pattern = resource.get("Fn::Sub", "") if isinstance(resource, dict) else resource
    open_ended = re.escape(pattern.removeprefix("${Bucket.Arn}/")).replace(r"\*", ".*")
    return bool(pattern.startswith("${Bucket.Arn}/") and re.fullmatch(open_ended, key))


def _role_statements(resources: Json, function: str) -> list[Json]:
    """With both sides of what depends on a parameter."""
    return list(_either_way(_policy(resources, function)))


def _policy(resources: Json, function: str) -> list[Json]:
    assert properties(resources, function)["Role"] == {"Fn::GetAtt": [f"{function}Role", "Arn"]}
    (policy,) = properties(resources, f"{function}Role")["Policies"]
    statements: list[Json] = policy["PolicyDocument"]["Statement"]
    return statements


def _statements(resources: Json) -> Iterator[Json]:
    for _, role in of_type(resources, "AWS::IAM::Role"):
        for policy in role["Policies"]:
            yield from _either_way(policy["PolicyDocument"]["Statement"])


def _either_way(statements: list[Json]) -> Iterator[Json]:
    for statement in statements:
        yield from statement["Fn::If"][1:] if "Fn::If" in statement else [statement]


_NO_VALUE = {"Ref": "AWS::NoValue"}


def _resolved(value: Any, secret: bool) -> Any:
    """The value in a deployment whose tokens are a secret, or are not."""
    if isinstance(value, list):
        return [_resolved(each, secret) for each in value]
    if isinstance(value, dict) and value.get("Fn::If", [""])[0] == "TokensAreSecret":
        return value["Fn::If"][1 if secret else 2]
    return {key: _resolved(each, secret) for key, each in value.items()} if isinstance(value, dict) else value


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# --- alarms -----------------------------------------------------------------------------------------------------


@pytest.mark.proves("operations-70")
@pytest.mark.parametrize(
    ("metric", "of"),
    [
        ("ApproximateAgeOfOldestMessage", "Commands"),
        ("ApproximateAgeOfOldestMessage", "Ingestion"),
        ("ApproximateNumberOfMessagesVisible", "CommandsDead"),
        ("ApproximateNumberOfMessagesVisible", "IngestionDead"),
        ("Failures", "Verify"),
        ("LeaseSeconds", "Verify"),
        ("Failures", "Backup"),
        ("Failures", "Gc"),
    ],
)
def test_somebody_is_told(resources: Json, metric: str, of: str) -> None:
    alarms = [
        alarm
        for _, alarm in of_type(resources, "AWS::CloudWatch::Alarm")
        if alarm["MetricName"] == metric
        and alarm["Dimensions"][0]["Value"] in ({"Ref": of}, {"Fn::GetAtt": [of, "QueueName"]})
    ]
    (alarm,) = alarms
    assert alarm["AlarmActions"]["Fn::If"][0] == "HasAlarmTopic"
    if metric == "Failures" and of != "Gc":
        assert alarm["TreatMissingData"] == "breaching", "a job that does not run tells nothing"
