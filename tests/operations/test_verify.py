"""`verify` finds what is planted: every rule of a sound store is broken here at least once."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import apsw
import pytest

from memoree import limits
from memoree.database import integrity
from memoree.database.connection import open_writer
from memoree.objects.audit import DirectoryAudit
from memoree.objects.filesystem import FilesystemStore
from memoree.verification import (
    bundles,
    contradictions,
    counters,
    derivations,
    episodes,
    erasures,
    history,
    index,
    outcomes,
    revisions,
    sources,
)
from memoree.verification.issue import DatabaseKind, Issue
from memoree.verification.rule import Rule, breaches
from memoree.verification.store import Report, verify
from memoree.verification.structure import LITESTREAM_TABLES
from mixed_mutations import BLOBS, LONG_TEXT, mixed_mutations

from .bench import Bench
from .damages import DAMAGES

RULES: tuple[Rule, ...] = (
    *counters.RULES,
    *revisions.RULES,
    *index.CHUNK_RULES,
    *derivations.RULES,
    *contradictions.RULES,
    *sources.RULES,
    *episodes.RULES,
    *bundles.RULES,
    *history.RULES,
    *outcomes.RULES,
    *erasures.RULES,
)


@dataclass
class Store:
    """A store on its own, and ways to damage it behind the program's back."""

    directory: Path
    db: apsw.Connection

    def damage(self, sql: str) -> None:
        """Run the statements without triggers, foreign keys and checks; each must change something."""
        self.db.execute("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON")
        triggers = list(self.db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        for name, _ in triggers:
            self.db.execute(f"DROP TRIGGER {name}")
        for statement in filter(str.strip, sql.split(";")):
            before = self.db.total_changes()
            self.db.execute(statement)
            assert self.db.total_changes() > before, f"nothing was damaged by {statement}"
        for _, create in triggers:
            self.db.execute(create)

    def verify(self) -> Report:
        return verify(self.db, DirectoryAudit(FilesystemStore(self.directory / "objects"), "local"))

    @property
    def blob(self) -> Path:
        (found,) = (path for path in (self.directory / "objects" / "tenants").rglob("*") if path.is_file())
        return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound store that has seen every mutation."""
    directory = tmp_path_factory.mktemp("verify") / "store"
    directory.mkdir()
    bench = Bench(directory)
    mixed_mutations(bench.write)
    _with_bundle(bench)
    bench.close()
    return directory


def _with_bundle(bench: Bench) -> None:
    """A bundle with a node that names another one, and one that was withdrawn."""
    source = bench.write("source.register", {"name": "okf:kiln", "kind": "okf"})["source_id"]
    nodes = {
        "concepts/kiln.md": b"---\ntype: Concept\nrelations:\n  about: /concepts/glaze.md\n---\nThe kiln is wide.\n",
        "concepts/glaze.md": b"---\ntype: Concept\n---\nCeladon wants cone 9.\n",
    }
    for path, data in nodes.items():
        revision = hashlib.sha256(data).hexdigest()
        item = {"source_id": source, "external_id": path, "external_revision": revision, "kind": "okf.node"}
        bench.write("source.ingest", item | {"title": path, "content": {"type": "text", "data": data.decode()}})
    bench.write("source.withdraw", {"source_id": source, "external_id": "concepts/glaze.md", "reason": "it is gone"})


@pytest.fixture
def stored(template: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copytree(template, tmp_path / "store")
    db = open_writer(tmp_path / "store" / "store.sqlite3", replicated=True)
    yield Store(tmp_path / "store", db)
    db.close()


@pytest.mark.proves("machine-212")
def test_a_store_that_saw_every_mutation_is_whole(stored: Store) -> None:
    report = stored.verify()
    assert report.lines() == []
    assert (report.ok, report.issues_left_out) == (True, 0)
    count = stored.db.execute("SELECT count(*) FROM artifact_revisions").get
    assert (report.artifact_revisions, report.blobs) == (count, BLOBS)
    assert report.claim_revisions == stored.db.execute("SELECT count(*) FROM claim_revisions").get


# --- the database -----------------------------------------------------------------------------------------------


def in_memory(db: apsw.Connection) -> apsw.Connection:
    copy = apsw.Connection(":memory:")
    with copy.backup("main", db, "main") as backup:
        backup.step()
    return copy


def is_broken(db: apsw.Connection, rule: Rule) -> bool:
    try:
        return any(breaches(db, [rule]))
    except apsw.SQLError:  # the damage keeps it from being asked
        return False


EVERY_DAMAGE = [(kind, name, sql) for kind, damages in DAMAGES.items() for name, sql in damages.items()]


@pytest.mark.proves("machine-213", "machine-145")
@pytest.mark.parametrize(("kind", "sql"), [pytest.param(kind, sql, id=name) for kind, name, sql in EVERY_DAMAGE])
def test_damage_in_the_database_is_found(stored: Store, kind: DatabaseKind, sql: str) -> None:
    stored.damage(sql)
    report = stored.verify()
    assert not report.ok
    assert kind in {issue.kind for issue in report.issues}, report.lines()


@pytest.mark.proves("machine-213")
def test_every_rule_is_broken_by_some_damage(stored: Store) -> None:
    """Otherwise a rule could be wrong without anybody noticing."""
    never_broken = set(RULES)
    for _, _, sql in EVERY_DAMAGE:
        copy = Store(stored.directory, in_memory(stored.db))
        copy.damage(sql)
        never_broken -= {rule for rule in never_broken if is_broken(copy.db, rule)}
        copy.db.close()
    assert [rule.says for rule in never_broken] == []
    assert {*DAMAGES, "schema"} == set(get_args(DatabaseKind))


@pytest.mark.proves("machine-213")
def test_every_rule_of_every_index_is_broken_by_some_damage(stored: Store) -> None:
    never_broken = {rule.says for rules in index.INDEXES.values() for rule in rules}
    for sql in DAMAGES["index"].values():
        copy = Store(stored.directory, in_memory(stored.db))
        copy.damage(sql)
        never_broken -= {issue.detail for issue in index.issues(copy.db)}
        copy.db.close()
    assert never_broken == set()


@pytest.mark.proves("machine-213")
@pytest.mark.parametrize(("word", "name"), [("iron", "artifact_fts"), ("stopped", "claim_fts")])
def test_a_lost_word_is_told_once_and_not_by_name(stored: Store, word: str, name: str) -> None:
    stored.damage(f"DELETE FROM words WHERE word = '{word}'")
    [issue] = stored.verify().issues
    assert (issue.kind, issue.entity) == ("index", name)
    assert word not in str(issue)


@pytest.mark.proves("machine-212")
def test_words_that_the_tokenizer_cuts_elsewhere_are_no_damage(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.claim("glaze\u20ddfire \u0488kiln")
    for text in ("naïve Ελληνικά йога Ёлка", "हिन्दी में", "ภาษาไทย", "עִבְרִית", "\u0301\u0327 x\u0301y"):
        bench.put(text, title=text)
    assert list(index.issues(bench.db)) == []
    bench.close()


SCHEMA_DAMAGES = {
    "an index": "DROP INDEX relations_by_target",
    "the index that allows one open case": "DROP INDEX one_open_case_per_relation",
    "a trigger": "DROP TRIGGER events_are_immutable",
    "a table": "DROP TABLE feedback",
    "an index of words that keeps what is erased": "DELETE FROM claim_fts_config WHERE k = 'secure-delete'",
    "an index of words that never merges": "INSERT INTO artifact_fts (artifact_fts, rank) VALUES ('automerge', 0)",
    "the scores of artifacts": "INSERT INTO artifact_fts (artifact_fts, rank) VALUES ('rank', 'bm25()')",
    "the scores of claims": "INSERT INTO claim_fts (claim_fts, rank) VALUES ('rank', 'bm25(1.0, 1.0, 1.0)')",
    "the scores of projections": "DELETE FROM projection_fts_config WHERE k = 'rank'",
    "the index of active anchors": "DROP INDEX active_anchors",
    "the words that misspelled ones are compared with": "DROP TABLE words",
    "a trigger of somebody else": """
        CREATE TRIGGER peace BEFORE INSERT ON claim_revisions
        BEGIN UPDATE claims SET status = 'active' WHERE status = 'conflicted'; END
    """,
    "a table of somebody else": "CREATE TABLE notes (note UNIQUE)",
    "an index of somebody else": "CREATE INDEX claims_by_status ON claims (status)",
    "a view of somebody else": "CREATE VIEW live AS SELECT * FROM claims WHERE status = 'active'",
    "a table with a name like Litestream's": "CREATE TABLE _litestream_notes (note)",
    "an index over something else": "DROP INDEX open_cases_by_source; "
    "CREATE INDEX open_cases_by_source ON conflict_cases (source_claim_row)",
}


@pytest.mark.proves("machine-213")
@pytest.mark.fault_class(64)
@pytest.mark.parametrize("what", SCHEMA_DAMAGES)
def test_a_schema_that_is_not_that_of_a_new_store_is_found(stored: Store, what: str) -> None:
    stored.db.execute(SCHEMA_DAMAGES[what])
    assert "schema" in {issue.kind for issue in stored.verify().issues}


@pytest.mark.proves("machine-212")
def test_the_tables_of_replication_are_no_damage(stored: Store) -> None:
    for table in LITESTREAM_TABLES:
        stored.db.execute(f"CREATE {table} (id INTEGER)")
    assert stored.verify().lines() == []


# --- blobs ------------------------------------------------------------------------------------------------------


def flip_one_byte(blob: Path) -> None:
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.write_bytes(data)


def become_a_link(directory: Path) -> None:
    directory.symlink_to(directory.rename(directory.with_suffix(".kept")))


def become_a_file(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.touch()


SIZE = len(LONG_TEXT)
BLOB_DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a blob that is gone": (Path.unlink, "is missing from the store"),
    "a blob with one flipped bit": (flip_one_byte, "digest mismatch"),
    "a blob that was cut short": (lambda blob: blob.write_bytes(blob.read_bytes()[:-1]), f"where {SIZE} were recorded"),
    "a blob that grew": (lambda blob: blob.write_bytes(blob.read_bytes() + b"x"), f"where {SIZE} were recorded"),
    "a blob that became a directory": (lambda blob: (blob.unlink(), blob.mkdir()), "is missing from the store"),
    "a blob under another name": (lambda blob: blob.rename(blob.with_name("0" * 64)), "is not the name of a blob"),
    "a file that is no blob": (lambda blob: blob.with_name("notes.txt").write_text("x"), "is not the name of a blob"),
    "an unreferenced blob that is not what it says": (
        lambda blob: blob.with_name(blob.parent.name + "f" * 62).write_text("x"),
        "digest mismatch",
    ),
    "a blob that became a link": (
        lambda blob: (blob.rename(blob.with_suffix(".kept")), blob.symlink_to(blob.with_suffix(".kept"))),
        "cannot be read",
    ),
    "a blob that became a pipe": (lambda blob: (blob.unlink(), os.mkfifo(blob)), "cannot be read"),
    "a directory of blobs that became a link": (lambda blob: become_a_link(blob.parent), "cannot be read"),
    "a directory of blobs that became a file": (lambda blob: become_a_file(blob.parent), "cannot be read"),
    "a tenant whose directory became a link": (lambda blob: become_a_link(blob.parents[3]), "cannot be listed"),
    "a tenant whose directory became a file": (lambda blob: become_a_file(blob.parents[3]), "cannot be listed"),
    "a tenant whose directory is gone": (lambda blob: shutil.rmtree(blob.parents[3]), "is missing from the store"),
    "a store that became a file": (lambda blob: become_a_file(blob.parents[5]), "cannot be listed"),
}


@pytest.mark.proves("machine-213", "machine-91")
@pytest.mark.parametrize("damage", BLOB_DAMAGES)
def test_damage_of_blobs_is_found(stored: Store, damage: str) -> None:
    inflict, expected = BLOB_DAMAGES[damage]
    inflict(stored.blob)
    found = [issue for issue in stored.verify().issues if issue.kind == "blob"]
    assert any(expected in issue.detail for issue in found), found


# --- bounds -----------------------------------------------------------------------------------------------------


def test_of_many_issues_some_are_told_and_all_are_counted(stored: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VERIFY_ISSUES_MAX", 5)
    stored.damage("UPDATE claims SET revision_count = 9; UPDATE meta SET integrity = zeroblob(32)")
    report = stored.verify()
    claims = stored.db.execute("SELECT count(*) FROM claims").get
    assert len(report.issues) == 5
    assert report.lines()[-1] == f"and {report.issues_left_out} more"
    assert len(report.issues) + report.issues_left_out == claims + 1


def test_a_check_that_damage_cuts_short_does_not_keep_the_others_from_theirs(stored: Store) -> None:
    stored.damage("UPDATE events SET payload = 'none' WHERE commit_seq = 3; UPDATE meta SET integrity = zeroblob(32)")
    report = stored.verify()
    assert any("cut the check of it short" in issue.detail for issue in report.issues)
    assert "integrity_sum" in {issue.kind for issue in report.issues}


def test_a_restore_may_leave_a_gap_and_nothing_else(stored: Store) -> None:
    """`store.restored` takes the number after everything that either history used."""
    last = stored.db.execute("SELECT max(commit_seq) FROM events").get
    restored = last + 7
    stored.damage(
        f"""INSERT INTO events SELECT {restored}, 'evt_restored', hlc + 1, 'store.restored', 'store', 'local', NULL,
            NULL, '{{}}', created_at FROM events WHERE commit_seq = {last};
        UPDATE meta SET commit_seq = {restored}, hlc = hlc + 1"""
    )
    stored.db.execute("UPDATE meta SET integrity = ?", (integrity.recompute(stored.db),))
    assert stored.verify().lines() == []


def test_nothing_of_the_check_stays_behind(stored: Store) -> None:
    stored.verify()
    assert list(stored.db.execute("SELECT name FROM sqlite_temp_master")) == []
    assert not stored.db.in_transaction


def scans_within_scans(db: apsw.Connection, rule: Rule) -> list[str]:
    """The tables that a rule's plan reads from end to end once per row of another. `meta` has one row, a list in a JSON
    text is short, and what a subquery scans stands in the plan by itself."""
    plan = list(db.execute(f"EXPLAIN QUERY PLAN {rule.sql}"))
    parents = {node: (parent, detail) for node, parent, _, detail in plan}
    found, scanned_at = [], set()
    for _, parent, _, detail in plan:
        is_short = "VIRTUAL TABLE" in detail or "(subquery" in detail or detail in ("SCAN m", "SCAN meta")
        if is_short or not detail.startswith("SCAN "):
            continue
        ancestors, up = [], parent
        while up in parents:
            up, above = parents[up]
            ancestors.append(above)
        if parent in scanned_at or any("CORRELATED" in above for above in ancestors):
            found.append(f"{rule.says}: {detail}")
        scanned_at.add(parent)
    return found


def test_no_rule_takes_time_that_grows_faster_than_the_store(stored: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [scan for rule in RULES for scan in scans_within_scans(stored.db, rule)]

    def explained(db: apsw.Connection, rules: Iterable[Rule]) -> Iterator[Issue]:
        found.extend(scan for rule in rules for scan in scans_within_scans(db, rule))
        yield from ()

    monkeypatch.setattr(index, "breaches", explained)
    assert list(index.issues(stored.db)) == []
    assert found == []
