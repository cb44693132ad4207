#!/usr/bin/env bash
# Runs inside the container once LocalStack is ready; may run again at any time.
set -euo pipefail

awslocal s3api create-bucket --bucket memoree >/dev/null 2>&1 || awslocal s3api head-bucket --bucket memoree

fifo='"FifoQueue":"true","ContentBasedDeduplication":"false","MaximumMessageSize":"262144","MessageRetentionPeriod":"1209600"'
awslocal sqs create-queue --queue-name memoree-commands-dead.fifo --attributes "{$fifo}" >/dev/null
dead_arn=$(awslocal sqs get-queue-attributes --attribute-names QueueArn --query Attributes.QueueArn --output text \
    --queue-url "$(awslocal sqs get-queue-url --queue-name memoree-commands-dead.fifo --query QueueUrl --output text)")
redrive="{\\\"deadLetterTargetArn\\\":\\\"$dead_arn\\\",\\\"maxReceiveCount\\\":\\\"1000\\\"}"
awslocal sqs create-queue --queue-name memoree-commands.fifo \
    --attributes "{$fifo,\"VisibilityTimeout\":\"15\",\"RedrivePolicy\":\"$redrive\"}" >/dev/null
