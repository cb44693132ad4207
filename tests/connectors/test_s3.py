"""A bucket as a source: listed on a real SeaweedFS, followed by the notifications of a ministack."""

from __future__ import annotations

import unicodedata
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError

from connectors.bucket import Bucket
from connectors.support import Outbox, Runs, content_of
from memoree.connectors import s3
from memoree.connectors.s3 import S3Access, S3Connector
from memoree.errors import Code, MemoreeError
from memoree.objects.s3 import S3Settings
from ministack_support import install_ministack, running_ministack

NFC = unicodedata.normalize("NFC", "café.md")
NFD = unicodedata.normalize("NFD", "café.md")


@pytest.fixture
def bucket(seaweedfs: S3Settings) -> Bucket:
    """A prefix of the test's own in the shared bucket."""
    access = S3Access(
        endpoint_url=seaweedfs.endpoint_url,
        region=seaweedfs.region,
        access_key_id=seaweedfs.access_key_id,
        secret_access_key=seaweedfs.secret_access_key,
    )
    return Bucket(seaweedfs.bucket, f"tenants/{uuid.uuid4().hex}/", access)


@pytest.fixture(scope="module")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Access]:
    install_ministack(tmp_path_factory.getbasetemp().parent / "install-ministack.lock")
    with running_ministack(tmp_path_factory.mktemp("ministack"), services="s3,sqs") as server:
        yield S3Access(
            endpoint_url=server.endpoint_url, region=server.region, access_key_id="test", secret_access_key="test"
        )


@pytest.fixture
def notifying(ministack: S3Access) -> Bucket:
    """A bucket of the test's own that notifies a queue."""
    made = Bucket(f"docs-{uuid.uuid4().hex}", "docs/", ministack)
    made.notifies()
    return made


def withhold(monkeypatch: pytest.MonkeyPatch, key: str, status: int, code: str) -> None:
    """The bucket lists an object and does not give it out."""
    really_connect = S3Access.client

    async def client(self: S3Access, stack: AsyncExitStack, service: str, endpoint_url: str | None) -> Any:
        connected = await really_connect(self, stack, service, endpoint_url)
        if service != "s3":
            return connected
        really_get = connected.get_object

        async def get(**arguments: Any) -> Any:
            if arguments["Key"] == key:
                answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
                raise ClientError(answer, "GetObject")
            return await really_get(**arguments)

        connected.get_object = get
        return connected

    monkeypatch.setattr(S3Access, "client", client)


# --- listing ----------------------------------------------------------------------------------------------------

seaweed = pytest.mark.stack


@seaweed
def test_every_text_object_below_the_prefix_is_delivered_with_its_etag(bucket: Bucket, runs: Runs) -> None:
    bucket.put_all({"kiln.md": "# Kiln\n", "deep/celadon.txt": "Celadon", "photo.png": b"\x89PNG", ".hidden.md": "x"})

    summary, outbox = runs.run(bucket.connector())

    assert sorted(outbox.ids()) == ["deep/celadon.txt", "kiln.md"]
    item = outbox.one("kiln.md")
    assert (content_of(item), item.title) == (b"# Kiln\n", "Kiln")
    etag = item.external_revision.removeprefix("etag:")
    assert item.provenance == {
        "connector": "s3",
        "bucket": bucket.name,
        "key": f"{bucket.prefix}kiln.md",
        "etag": etag,
    }
    assert summary.skipped_count == 0


@pytest.mark.proves("operations-60")
@seaweed
def test_changed_objects_are_revisions_removed_ones_are_withdrawn_and_the_rest_is_not_fetched(
    bucket: Bucket, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put_all({"kiln.md": "Cone 6.", "gone.md": "gone", "same.md": "same"})
    runs.run(bucket.connector())
    bucket.put_all({"kiln.md": "Cone 7."})
    bucket.remove("gone.md")
    fetched: list[str] = []
    really_fetch = S3Connector._content

    async def fetch(self: S3Connector, client: Any, found: Any) -> bytes | None:
        fetched.append(found.external_id)
        return await really_fetch(self, client, found)

    monkeypatch.setattr(S3Connector, "_content", fetch)

    _, outbox = runs.run(bucket.connector())

    assert fetched == ["kiln.md"]
    assert [(m.external_id, content_of(m)) for m in outbox.delivered] == [("kiln.md", b"Cone 7.")]
    assert outbox.withdrawn == ["gone.md"]
    assert runs.run(bucket.connector())[1].messages == []


@pytest.mark.proves("operations-60")
@seaweed
@pytest.mark.parametrize(
    ("status", "code"), [(403, "InvalidObjectState"), (403, "AccessDenied"), (400, "KMS.Disabled")]
)
def test_an_object_that_is_not_given_out_is_told_and_the_others_are_delivered(
    status: int, code: str, bucket: Bucket, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put_all({"archived.md": "ice", "kiln.md": "Cone 6."})
    outbox = Outbox()
    with monkeypatch.context() as archived, suppress(MemoreeError):
        withhold(archived, f"{bucket.prefix}archived.md", status, code)
        summary, _ = runs.run(bucket.connector(), outbox)

    assert outbox.ids() == ["kiln.md"]
    assert [skipped.where for skipped in summary.skipped] == ["archived.md"]
    assert code in summary.skipped[0].reason
    assert runs.run(bucket.connector())[1].ids() == ["archived.md"]


@pytest.mark.proves("operations-60")
@seaweed
def test_an_empty_prefix_withdraws_nothing_unless_told_so(bucket: Bucket, runs: Runs) -> None:
    bucket.put_all({"kiln.md": "Cone 6."})
    runs.run(bucket.connector())
    bucket.remove("kiln.md")

    with pytest.raises(MemoreeError) as refused:
        runs.run(bucket.connector())

    assert refused.value.code is Code.CONFIG_ERROR
    assert runs.run(bucket.connector(allow_empty=True))[1].withdrawn == ["kiln.md"]


@seaweed
def test_an_object_that_changes_between_its_listing_and_its_reading_is_read_as_it_is_then(
    bucket: Bucket, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put_all({"kiln.md": "Cone 6.", "gone.md": "gone", "other.md": "other"})
    really_fetch = S3Connector._content
    changed: list[str] = []

    async def fetch(self: S3Connector, client: Any, found: Any) -> bytes | None:
        if found.external_id not in changed:
            changed.append(found.external_id)
            if found.external_id == "kiln.md":
                await client.put_object(Bucket=bucket.name, Key=found.key, Body=b"Cone 7.")
            if found.external_id == "gone.md":
                await client.delete_object(Bucket=bucket.name, Key=found.key)
        return await really_fetch(self, client, found)

    monkeypatch.setattr(S3Connector, "_content", fetch)

    _, outbox = runs.run(bucket.connector())

    assert {message.external_id: content_of(message) for message in outbox.delivered} == {
        "kiln.md": b"Cone 7.",
        "other.md": b"other",
    }
    etag = outbox.one("kiln.md").external_revision
    monkeypatch.undo()
    assert runs.run(bucket.connector())[0].unchanged == 2, f"{etag} is not that of the bytes"


@seaweed
def test_twins_are_told_and_bytes_are_kept(bucket: Bucket, runs: Runs) -> None:
    content = bytes(range(256))
    bucket.put_all({NFC: "composed", NFD: "decomposed", "binary.txt": content, "large.md": b"x" * 3000})

    summary, outbox = runs.run(bucket.connector(bytes_max=2000))

    assert sorted(outbox.ids()) == ["binary.txt", NFC]
    assert content_of(outbox.one("binary.txt")) == content
    assert outbox.one("binary.txt").media_type == "application/octet-stream"
    assert sorted(skipped.where for skipped in summary.skipped) == [NFC, "large.md"]


@seaweed
def test_a_bucket_that_is_not_there_is_refused(bucket: Bucket, runs: Runs) -> None:
    elsewhere = Bucket("no-such-bucket-here", "", bucket.access)

    with pytest.raises(MemoreeError) as refused:
        runs.run(elsewhere.connector())

    assert refused.value.code is Code.CONFIG_ERROR


# --- events -----------------------------------------------------------------------------------------------------

ministacked = pytest.mark.xdist_group("ministack")


@pytest.mark.proves("operations-60")
@ministacked
def test_objects_are_delivered_and_withdrawn_as_the_bucket_tells(notifying: Bucket, runs: Runs) -> None:
    notifying.put_all({"red café+1.md": "red", "kiln.md": "Cone 6.", "photo.png": b"\x89PNG"})

    _, first = runs.run(notifying.follower())
    notifying.put_all({"kiln.md": "Cone 7."})
    notifying.remove("red café+1.md")
    _, second = runs.run(notifying.follower())

    assert sorted(first.ids()) == ["kiln.md", "red café+1.md"]
    assert [(m.external_id, content_of(m)) for m in second.delivered] == [("kiln.md", b"Cone 7.")]
    assert second.withdrawn == ["red café+1.md"]
    assert notifying.waiting() == 0


@pytest.mark.proves("operations-60")
@ministacked
def test_late_repeated_and_reordered_events_change_nothing(notifying: Bucket, runs: Runs) -> None:
    notifying.put_all({"kiln.md": "Cone 6."})
    runs.run(notifying.follower())
    late = [("ObjectRemoved:Delete", "0001"), ("ObjectCreated:Put", "0000"), ("ObjectRemoved:Delete", "0001")]
    for name, sequencer in late:
        notifying.tell({"Records": [event(notifying, name, "docs/kiln.md", sequencer)]})

    _, outbox = runs.run(notifying.follower())

    assert outbox.messages == []
    assert notifying.waiting() == 0


@pytest.mark.proves("operations-60")
@ministacked
def test_events_of_a_spelling_that_was_not_delivered_do_not_touch_the_one_that_was(
    notifying: Bucket, runs: Runs
) -> None:
    notifying.put_all({NFD: "first"})
    runs.run(notifying.follower())

    notifying.put_all({NFC: "other"})
    summary, twin = runs.run(notifying.follower())
    notifying.remove(NFC)
    _, removed = runs.run(notifying.follower())

    assert (twin.delivered, twin.withdrawn, summary.skipped_count) == ([], [], 1)
    assert (removed.delivered, removed.withdrawn) == ([], [])
    assert runs.run(notifying.follower())[1].messages == []


@pytest.mark.proves("operations-60")
@ministacked
def test_of_two_spellings_the_first_is_delivered_and_the_other_once_it_is_told_alone(
    notifying: Bucket, runs: Runs
) -> None:
    notifying.put_all({NFC: "alone"})
    runs.run(notifying.follower())

    notifying.put_all({NFD: "first"})
    _, overtaken = runs.run(notifying.follower())
    notifying.remove(NFD)
    notifying.put_all({NFC: "alone again"})
    _, back = runs.run(notifying.follower())

    assert [content_of(message) for message in overtaken.delivered + back.delivered] == [b"first", b"alone again"]
    assert overtaken.withdrawn + back.withdrawn == []


@pytest.mark.proves("operations-60")
@ministacked
def test_events_of_others_and_test_events_are_ignored_and_what_is_none_stays(notifying: Bucket, runs: Runs) -> None:
    notifying.put_all({"kiln.md": "Cone 6."})
    Bucket(notifying.name, "", notifying.access).put_all({"outside.md": "not below the prefix"})
    foreign = event(notifying, "ObjectCreated:Put", "docs/other.md")
    foreign["s3"]["bucket"]["name"] = "another-bucket"
    notifying.tell({"Records": [foreign]})
    notifying.tell({"Records": [event(notifying, "ObjectRestore:Post", "docs/kiln.md")]})
    notifying.tell("no event at all")

    summary, outbox = runs.run(notifying.follower())

    assert outbox.ids() == ["kiln.md"]
    assert summary.skipped_count == 1
    assert "stays on the queue" in summary.skipped[0].reason
    assert notifying.waiting() == 1


@pytest.mark.proves("operations-60")
@ministacked
def test_events_stay_on_their_queue_until_what_they_led_to_is_queued(notifying: Bucket, runs: Runs) -> None:
    notifying.put_all({"kiln.md": "Cone 6."})
    before = notifying.waiting()

    killed = runs.killed(notifying.follower(), after=0)

    assert killed.ids() == ["kiln.md"]
    assert notifying.waiting() == before


@pytest.mark.proves("operations-60")
@ministacked
def test_events_of_an_object_that_is_not_given_out_stay_on_their_queue(
    notifying: Bucket, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    notifying.put_all({"archived.md": "ice", "kiln.md": "Cone 6."})
    withhold(monkeypatch, f"{notifying.prefix}archived.md", 403, "AccessDenied")

    summary, outbox = runs.run(notifying.follower())

    assert outbox.ids() == ["kiln.md"]
    assert [skipped.where for skipped in summary.skipped] == ["archived.md"]
    assert notifying.waiting() == 1


@pytest.mark.proves("operations-60")
@ministacked
def test_a_bucket_that_vanished_withdraws_nothing(notifying: Bucket, runs: Runs) -> None:
    notifying.put_all({"kiln.md": "Cone 6."})
    runs.run(notifying.follower())
    notifying.remove("kiln.md")

    async def delete(client: Any) -> None:
        await client.delete_bucket(Bucket=notifying.name)

    notifying.does("s3", delete)
    outbox = Outbox()
    with pytest.raises(MemoreeError):
        runs.run(notifying.follower(), outbox)

    assert outbox.withdrawn == []


@pytest.mark.proves("operations-60")
@ministacked
def test_where_events_are_followed_the_bucket_is_listed_now_and_then(
    notifying: Bucket, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[int] = []
    really_scan = S3Connector._scan

    def scan(self: S3Connector, *arguments: Any) -> Any:
        listed.append(1)
        return really_scan(self, *arguments)

    monkeypatch.setattr(S3Connector, "_scan", scan)
    notifying.put_all({"kiln.md": "Cone 6."})
    connector = notifying.connector(events=s3.EventQueue(notifying.queue_url, notifying.access.endpoint_url))

    counts = []
    for every in (s3.SCAN_EVERY, s3.SCAN_EVERY, s3.SCAN_EVERY * 0):
        monkeypatch.setattr(s3, "SCAN_EVERY", every)
        runs.run(connector)
        counts.append(len(listed))

    assert counts == [1, 1, 2]


def event(bucket: Bucket, name: str, key: str, sequencer: str = "0001") -> dict[str, Any]:
    return {
        "eventVersion": "2.1",
        "eventName": name,
        "s3": {"bucket": {"name": bucket.name}, "object": {"key": key, "sequencer": sequencer}},
    }
