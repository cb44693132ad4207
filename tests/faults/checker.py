"""The independent judge of the commit protocol's invariants (design §5.4).

It shares nothing with the replica: it reads head as JSON, restores with the Litestream program at a boundary it
finds itself, and looks at rows with SQL of its own.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import boto3
import orjson
from blake3 import blake3

from contradiction_rules import broken_rules
from faults.site import Acknowledged, Site
from faults.watch import Watch
from memoree.binaries import find_binary

_CITED = """
    SELECT r.body, r.blob_hash, e.start_byte, e.end_byte FROM claims c
    JOIN claim_evidence e ON e.claim_revision_row = c.head_row
    JOIN artifact_revisions r ON r.row_id = e.artifact_revision_row WHERE c.claim_id = ?
"""
_UNDONE = "SELECT payload ->> 'to', payload ->> 'from' FROM events WHERE operation = 'store.restored'"
"""After which commit, and up to which."""
_LTX = re.compile(r"/(\d{4})/([0-9a-f]{16})-([0-9a-f]{16})\.ltx$")


class Checker:
    """Reads one tenant out of the store, at rest. Every violation is an assertion with its numbers."""

    def __init__(self, site: Site, scratch: Path, tenant: str | None = None) -> None:
        self.site = site
        self.tenant = tenant or site.tenant
        self._scratch = scratch
        self._s3 = boto3.client(
            "s3",
            endpoint_url=site.s3.endpoint_url,
            region_name=site.s3.region,
            aws_access_key_id=site.s3.access_key_id,
            aws_secret_access_key=site.s3.secret_access_key,
        )

    def check(self, acknowledged: Sequence[Acknowledged], watch: Watch | None = None) -> None:
        """W1 to W8 over everything that is covered now, and over what a watch saw on the way."""
        mine = [written for written in acknowledged if written.tenant == self.tenant]
        head = self.head()
        db = self.restored(head)
        try:
            self._acknowledged_once(db, mine)
            self._dense(db, head)
            self._ledger(head)
            self._blobs(db)
            self._nobody_else(db, [written for written in acknowledged if written.tenant != self.tenant])
            self._spans(db, mine)
            assert broken_rules(db) == [], "W8: conflict cases disagree with relations, claims or their events"
            if watch is not None:
                self._shown(db, watch)
        finally:
            db.close()

    # --- reading the store --------------------------------------------------------------------------------------

    def head(self) -> dict[str, Any]:
        document: dict[str, Any] = orjson.loads(self._get("head.json"))
        return document

    def restored(self, head: dict[str, Any]) -> apsw.Connection:
        """The newest state of head's prefix, by the real `litestream restore`."""
        prefix = f"tenants/{self.tenant}/{head['prefix']}"
        reached = next((end for end in self.boundaries(head["prefix"]) if end >= head["txid"]), None)
        assert reached is not None, f"nothing restores to TXID {head['txid']}: {self.boundaries(head['prefix'])}"
        path = self._scratch / f"checked-{self.tenant}-{head['revision']}.sqlite3"
        path.unlink(missing_ok=True)
        s3 = self.site.s3
        url = f"s3://{s3.bucket}/{prefix.rstrip('/')}?endpoint={s3.endpoint_url}&region={s3.region}&forcePathStyle=true"
        subprocess.run(
            [str(find_binary("litestream")), "restore", "-txid", f"{reached:016x}", "-o", str(path), url],
            check=True,
            capture_output=True,
            env={"AWS_ACCESS_KEY_ID": s3.access_key_id or "", "AWS_SECRET_ACCESS_KEY": s3.secret_access_key or ""},
        )
        return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)

    def boundaries(self, prefix: str) -> list[int]:
        """TXIDs that end a chain of files from the first one on, ascending."""
        names = [match for key in self.keys(prefix) if (match := _LTX.search(key))]
        ends: list[int] = []
        for last, first in sorted((int(name[3], 16), int(name[2], 16)) for name in names):
            if first <= (ends[-1] if ends else 0) + 1 and last > (ends[-1] if ends else 0):
                ends.append(last)
        return ends

    def keys(self, below: str) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.site.s3.bucket, Prefix=f"tenants/{self.tenant}/{below}"
        )
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def _get(self, key: str) -> bytes:
        found = self._s3.get_object(Bucket=self.site.s3.bucket, Key=f"tenants/{self.tenant}/{key}")
        body: bytes = found["Body"].read()
        return body

    # --- the invariants -----------------------------------------------------------------------------------------

    def _acknowledged_once(self, db: apsw.Connection, acknowledged: Sequence[Acknowledged]) -> None:
        """W1, and half of W4: two writers that both moved head would have given two writes one number."""
        statements = Counter(row[0] for row in db.execute("SELECT statement FROM claim_revisions"))
        numbers = {row[0]: row[1] for row in db.execute("SELECT claim_id, sys_from FROM claims")}
        assert not [text for text, times in statements.items() if times > 1], "W1: a write took effect twice"
        for written in acknowledged:
            assert statements[written.statement] == 1, f"W1: {written} was acknowledged and is not there"
            assert numbers[written.claim_id] == written.commit_seq, f"W1: {written} moved"
        per_number = Counter(
            written.commit_seq for written in {written.key: written for written in acknowledged}.values()
        )
        assert not [number for number, times in per_number.items() if times > 1], "W4: one number, two writes"

    def _dense(self, db: apsw.Connection, head: dict[str, Any]) -> None:
        """W2 and W3: numbers without a gap but that of a restore, and head names a state that exists."""
        events = list(db.execute("SELECT commit_seq, operation FROM events ORDER BY commit_seq"))
        followed = pairwise([(0, ""), *events])
        gaps = [number for (last, _), (number, what) in followed if number != last + 1 and what != "store.restored"]
        assert gaps == [], f"W2: commit_seq has a gap before {gaps}"
        clocks = [row[0] for row in db.execute("SELECT hlc FROM events ORDER BY commit_seq")]
        assert clocks == sorted(set(clocks)), "W2: the logical clock went back"
        batch, commit_seq, epoch = next(iter(db.execute("SELECT batch, commit_seq, epoch FROM meta")))
        assert commit_seq == max((number for number, _ in events), default=0), "W2: commits without an event"
        assert next(iter(db.execute("PRAGMA integrity_check"))) == ("ok",)
        assert (batch, commit_seq) >= (head["batch"], head["commit_seq"]), "W3: head covers more than there is"
        assert epoch == int(head["prefix"][4:12]), "W3: head's prefix holds another epoch"

    def _ledger(self, head: dict[str, Any]) -> None:
        """W4: every epoch was begun once, each continuing a state that was there."""
        epochs = {}
        for key in self.keys("epochs/"):
            entry = orjson.loads(self._get(key.removeprefix(f"tenants/{self.tenant}/")))
            epochs[int(key[-13:-5])] = entry
        current = int(head["prefix"][4:12])
        while current:
            parent = epochs[current]["parent_epoch"]
            assert parent < current
            if parent:
                assert epochs[current]["base_commit_seq"] >= epochs[parent]["base_commit_seq"]
            current = parent

    def _blobs(self, db: apsw.Connection) -> None:
        """W5: every blob a revision needs is there and is what its name says."""
        rows = db.execute("SELECT DISTINCT blob_hash, size_bytes FROM artifact_revisions WHERE body IS NULL")
        for digest, size in rows:
            name = digest.hex()
            body = self._get(f"blobs/b3/{name[:2]}/{name}")
            assert (len(body), blake3(body).digest()) == (size, digest), f"W5: blob {name} is damaged"

    def _nobody_else(self, db: apsw.Connection, foreign: Sequence[Acknowledged]) -> None:
        """W6: nothing of another tenant is in here."""
        here = {row[0] for row in db.execute("SELECT claim_id FROM claims")}
        assert not here & {written.claim_id for written in foreign}, "W6: a row of another tenant"
        attempts = [row[0] for row in db.execute("SELECT statement FROM claim_revisions")]
        assert not set(attempts) & {written.statement for written in foreign}, "W6: a statement of another tenant"

    def _spans(self, db: apsw.Connection, acknowledged: Sequence[Acknowledged]) -> None:
        """W7: what a claim cited is what it cites now."""
        for written in acknowledged:
            if written.citation is not None:
                rows = list(db.execute(_CITED, (written.claim_id,)))
                assert [self._quoted(row) for row in rows] == [written.citation.quoted], f"W7: {written.key}"

    def _quoted(self, row: tuple[Any, ...]) -> bytes:
        body, digest, start, end = row
        if body is None:
            name = digest.hex()
            body = self._get(f"blobs/b3/{name[:2]}/{name}")
        quoted: bytes = body[start:end]
        return quoted

    def _shown(self, db: apsw.Connection, watch: Watch) -> None:
        """W3: every state that was ever shown is a past of the one there is now, unless a restore undid it."""
        events = dict(db.execute("SELECT commit_seq, event_id FROM events"))
        undone = list(db.execute(_UNDONE))
        lasting = {
            number: event for number, event in watch.shown.items() if not any(a < number <= b for a, b in undone)
        }
        assert lasting.items() <= events.items(), "W3: a state was shown that did not last"
