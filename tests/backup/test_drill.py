"""The restore drill: a copy that holds everything and is weaker all the same is told from its source."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from memoree.backup.database import copy_database
from memoree.backup.drill import Drill, rehearse
from memoree.database.connection import open_reader

from .workshop import Workshop

AT = "2026-03-02T20:41:07.250000000Z"


def drilled(path: Path) -> Drill:
    with closing(open_reader(path, immutable=False)) as db:
        return rehearse(db, AT)


@pytest.mark.proves("fault-64", "operations-25")
def test_a_copy_answers_as_its_source_does_however_often_it_is_asked(filled: Workshop, tmp_path: Path) -> None:
    copy_database(filled.database, tmp_path / "copy.db")
    source = drilled(filled.database)
    assert source.questions == 10, "every text of the store once, and once misspelled"
    assert [drilled(tmp_path / "copy.db") for _ in range(2)] == [source, source]


@pytest.mark.proves("fault-64", "operations-25")
@pytest.mark.parametrize(
    ("weakness", "finds_less"),
    [("DROP INDEX active_anchors", False), ("DROP INDEX open_cases_by_source", False), ("DELETE FROM words", True)],
    ids=["no index of anchors", "no index of open cases", "no known words"],
)
def test_a_weaker_copy_is_told_from_its_source(
    filled: Workshop, tmp_path: Path, weakness: str, finds_less: bool
) -> None:
    source = drilled(filled.database)
    copy_database(filled.database, tmp_path / "copy.db")
    with closing(apsw.Connection(str(tmp_path / "copy.db"))) as db:
        db.execute(weakness)
    copy = drilled(tmp_path / "copy.db")
    assert copy.plans != source.plans
    assert (copy.answers != source.answers) is finds_less


@pytest.mark.proves("fault-64", "operations-25")
def test_verifying_a_backup_holds_its_answers_and_plans_against_those_of_its_source(filled: Workshop) -> None:
    made = filled.back_up()
    path = filled.path(made.key_of("backup.json"))
    for member in ("answers", "plans"):
        path.write_bytes(replace(made, drill=replace(made.drill, **{member: 64 * "0"})).to_bytes())
        checked = filled.verify(made.backup_id)
        assert checked.drill == "different"
        assert [fault.object for fault in checked.faults] == [made.key_of("checkpoint.db.zst")]
    other_program = replace(made, program="memoree 0.0.9", drill=replace(made.drill, answers=64 * "0"))
    path.write_bytes(other_program.to_bytes())
    filled.path(made.key_of("intent.json")).write_bytes(other_program.intent.to_bytes())
    checked = filled.verify(made.backup_id)
    assert (checked.drill, checked.faults) == ("not compared", [])


def test_a_store_without_any_text_is_drilled_too(workshop: Workshop) -> None:
    made = workshop.back_up()
    assert (made.commit_seq, made.drill.questions, workshop.verify(made.backup_id).drill) == (0, 0, "same")
