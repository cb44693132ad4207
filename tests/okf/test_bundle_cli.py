"""`memoree okf` over a directory, as it is typed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memoree.cli.commands import run
from memoree.cli.invocation import Invocation
from memoree.cli.main import guarded

from .bundle_support import AT, node, write
from .golden import BUNDLE, expected, needs_golden


@dataclass(frozen=True)
class Done:
    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    def envelope(self, kind: str) -> Any:
        """The data of the one line of JSON that was printed."""
        assert self.stdout.count("\n") == 1
        found = json.loads(self.stdout)
        assert list(found) == ["contract", "kind", "generatedAt", "data"]
        assert (found["contract"], found["kind"]) == (1, kind)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["generatedAt"])
        return found["data"]

    def refused(self, reason: str) -> None:
        assert (self.status, self.stdout) == (1, "")
        assert self.stderr.startswith("Error: ")
        assert reason in self.stderr


Okf = Callable[..., Done]


@pytest.fixture
def okf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Okf:
    """The command line in this process, in an empty directory and with a home that has nothing in it."""
    for name in [name for name in os.environ if name.startswith(("MEMOREE_", "OKF_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MEMOREE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")

    def run_line(*line: str | Path) -> Done:
        words = ["okf", *map(str, line)]
        status = guarded(lambda invocation: run(words, invocation), Invocation())
        printed = capsysbinary.readouterr()
        return Done(status, printed.out.decode(), printed.err.decode())

    return run_line


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(
        tmp_path / "small",
        {
            "concepts/old.md": node("Quokka one.", title="Old"),
            "concepts/new.md": node("Quokka two.", title="New", supersedes="/concepts/old.md", tags="[Fast]"),
            "entities/a.md": "---\ntype: Entity\ntitle: A\nrelations:\n  works_at: /entities/shop.md\n---\n",
            "entities/b.md": "---\ntype: Entity\ntitle: B\nrelations:\n  works_at: [entities/shop.md]\n---\n",
            "entities/shop.md": "---\ntype: Entity\ntitle: Shop\nrelations:\n  works_at: /entities/shop.md\n---\n",
            "entities/old.md": node("Other."),
            "index.md": "# The index\n",
            "secret/s.md": node("Quokka hidden.", title="Hidden"),
            "inbox/agent.md": "Quokka note.\n",
        },
    )


@pytest.mark.proves("okf-20")
@needs_golden
def test_the_golden_bundle_conforms(okf: Okf) -> None:
    for line in (("validate", BUNDLE), ("validate", "--root", BUNDLE, "--compat")):
        done = okf(*line)
        assert (done.status, done.stderr) == (0, "")
        assert done.lines[0] == "✅ OKF v0.1 conformant: 28 concepts, all have a non-empty type."


@pytest.mark.proves("okf-21", "okf-36")
def test_a_bundle_that_does_not_conform_ends_with_status_one(okf: Okf, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", {"a.md": "nothing", "b.md": "---\ntitle: T\n---\n"})
    done = okf("validate", root)
    assert done.status == 1
    assert done.lines == ["❌ NOT conformant:", "  a: no frontmatter", "  b: empty/missing required 'type'"]
    done = okf("validate", root, "--json")
    assert done.status == 1
    data = done.envelope("validate")
    assert (data["conformant"], data["concepts"], data["errors"]) == (False, 2, 2)
    assert data["findings"][0] == {
        "rule": "V1",
        "severity": "error",
        "section": "Conformance",
        "text": "a: no frontmatter",
    }


@pytest.mark.proves("okf-28")
def test_the_inbox_is_judged_when_it_is_asked_for(okf: Okf, small: Path) -> None:
    assert okf("validate", small).status == 0
    done = okf("validate", small, "--include-inbox")
    assert done.status == 1
    assert done.lines[:2] == ["❌ NOT conformant:", "  inbox/agent: no frontmatter"]


@pytest.mark.proves("okf-30")
def test_an_unknown_node_is_not_found_and_no_mistake_unless_its_relations_are_asked_for(okf: Okf, small: Path) -> None:
    done = okf("get", "nowhere", "--root", small)
    assert (done.status, done.stdout) == (0, "not found: nowhere\n")
    assert okf("get", "secret/s", "--root", small).stdout == "not found: secret/s\n"
    assert "Hidden" in okf("get", "s", "--root", small, "--include-secret").stdout
    okf("rel", "uses", "nowhere", "--root", small).refused("'nowhere' does not exist")
    okf("rel", "uses", "--root", small).refused("ID")


@pytest.mark.proves("okf-17")
def test_an_ambiguous_end_of_an_id_is_told_with_all_it_may_mean(okf: Okf, small: Path) -> None:
    okf("get", "old", "--root", small).refused("ambiguous: concepts/old, entities/old")
    okf("rel", "uses", "old", "--root", small).refused("ambiguous")


@pytest.mark.proves("okf-16")
@pytest.mark.parametrize("name", ["../../etc/passwd", "a/../b", "a//b", "/"])
def test_a_name_that_leads_out_is_refused(okf: Okf, small: Path, name: str) -> None:
    okf("get", name, "--root", small).refused("[INVALID_ID]")
    okf("rel", "uses", name, "--root", small).refused("[INVALID_ID]")


@pytest.mark.proves("okf-31")
@pytest.mark.parametrize("mode", [[], ["--compat"]])
def test_a_replaced_node_comes_with_a_banner_and_its_file_as_it_is(okf: Okf, small: Path, mode: list[str]) -> None:
    write(small, {"plain.md": "---\ntype: Concept\n---\nPlain."})
    assert okf("get", "plain", "--root", small, *mode).stdout == "---\ntype: Concept\n---\nPlain."
    assert okf("get", "index", "--root", small, *mode).stdout == "# The index\n"
    (small / "concepts" / "old.md").write_text("---\ntype: Concept\ndeprecated: true\n---\nNo line end")
    shown = okf("get", "concepts/old", "--root", small, *mode).stdout
    banner = "⚠ superseded by /concepts/new.md\n⚠ deprecated\n\n"
    assert shown == banner + "---\ntype: Concept\ndeprecated: true\n---\nNo line end"


def test_the_service_also_tells_what_a_node_says_of_its_own_end(okf: Okf, tmp_path: Path) -> None:
    fields = {"superseded_by": "/b.md", "invalid_at": "2020-01-01", "valid_from": "2999-01-01"}
    root = write(tmp_path / "bundle", {"a.md": node(**fields)})
    assert okf("get", "a", "--root", root).lines[:4] == [
        "⚠ says it is superseded by /b.md",
        "⚠ no longer valid (invalid_at 2020-01-01)",
        "⚠ not yet valid (valid_from 2999-01-01)",
        "",
    ]
    assert okf("get", "a", "--root", root, "--compat").stdout == node(**fields)


@pytest.mark.proves("okf-32")
def test_relations_are_followed_back_under_the_key_as_it_is_written(okf: Okf, small: Path) -> None:
    assert okf("rel", "works_at", "shop", "--inbound", "--root", small).lines == [
        "# works_at from entities/shop (1)",
        "/entities/shop.md",
        "",
        "# Inbound works_at → entities/shop (2)",
        "entities/a",
        "entities/b",
    ]
    assert okf("rel", "member_of", "shop", "--inbound", "--root", small).lines == [
        "# member_of from entities/shop (0)",
        "— none",
        "",
        "# Inbound member_of → entities/shop (0)",
        "— none",
    ]
    assert okf("rel", "works_at", "a", "--root", small).lines == [
        "# works_at from entities/a (1)",
        "/entities/shop.md",
    ]


@pytest.mark.proves("okf-33", "okf-36")
@needs_golden
def test_the_graph_of_the_golden_bundle_is_one_line_of_json(okf: Okf) -> None:
    data = okf("links", "--json", "--root", BUNDLE).envelope("links")
    wanted = expected()["links"]
    assert len(data.pop("nodes")) == wanted["nodes"] == 28
    assert data == {name: value for name, value in wanted.items() if name != "nodes"}
    assert okf("links", BUNDLE).lines[0] == "# 28 concepts, 25 edges (3 links, 21 relations, 1 supersessions)"


@pytest.mark.proves("okf-34")
@pytest.mark.parametrize("command", ["list", "links", "validate", "type T", "tag T", "get x", "rel k x", "recall w"])
def test_mistakes_on_the_line_end_with_status_one_and_a_reason(okf: Okf, tmp_path: Path, command: str) -> None:
    words = command.split()
    (tmp_path / "file").write_text("x")
    okf(*words, "--frobnicate").refused("--frobnicate")
    okf(*words, "-z").refused("-z")
    okf(*words, "--root").refused("--root")
    okf(*words, "--root", tmp_path / "missing").refused("does not exist")
    okf(*words, "--root", tmp_path / "file").refused("is not a directory")
    okf(*words, "--root", "").refused("--root")


@pytest.mark.proves("okf-35")
def test_the_root_on_the_line_comes_before_the_variable_and_that_before_the_directory(
    okf: Okf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("line", "variable"):
        write(tmp_path / name, {f"{name}.md": node()})
    write(tmp_path / "cwd", {"here.md": node()})
    (tmp_path / "link").symlink_to(tmp_path / "line")
    assert "here" in okf("list").lines[1]
    monkeypatch.setenv("OKF_ROOT", str(tmp_path / "variable"))
    assert "variable" in okf("list").lines[1]
    for root in ("line", "link"):
        assert "line" in okf("list", "--root", tmp_path / root).lines[1]
    monkeypatch.setenv("OKF_ROOT", str(tmp_path / "gone"))
    okf("list").refused("does not exist")


@pytest.mark.proves("okf-36")
@pytest.mark.parametrize(
    "command", ["list", "links", "validate", "type Concept", "tag fast", "get new", "rel k new", "recall quokka"]
)
def test_every_line_of_json_has_the_same_envelope(okf: Okf, small: Path, command: str) -> None:
    words = command.split()
    assert okf(*words, "--root", small, "--json").envelope(words[0])


def test_lists_tell_type_visibility_and_title(okf: Okf, small: Path) -> None:
    write(small, {"concepts/bare.md": "Nothing.\n"})
    lines = okf("list", "--root", small).lines
    assert lines[:4] == [
        "# 7 concepts",
        "∅          internal  concepts/bare  — ",
        "Concept    internal  concepts/new  — New",
        "Concept    internal  concepts/old  — Old",
    ]
    assert (
        okf("list", small, "--include-secret", "--include-inbox").lines[0]
        == "# 9 concepts (incl. secret) (incl. inbox)"
    )
    assert okf("type", "CONCEPT", "--root", small).lines == [
        "concepts/new — New",
        "concepts/old — Old",
        "entities/old — ",
    ]
    assert okf("tag", "fAST", "--root", small).lines == ["concepts/new — New"]
    assert okf("tag", "slow", "--root", small).lines == ["no nodes with tag slow"]
    assert okf("type", "Plan", "--root", small).lines == ["no nodes of type Plan"]


def test_a_title_cannot_pass_for_a_row_nor_move_the_cursor(okf: Okf, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", {"a.md": '---\ntype: Concept\ntitle: "x\\n9.999  Concept    fake\\e[2J"\n---\n'})
    assert okf("list", root).lines[1:] == ["Concept    internal  a  — x\\n9.999  Concept    fake\\x1b[2J"]
    assert len(okf("recall", "fake", "--root", root, "--mode", "bm25").lines) == 2


# --- recall -----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("okf-37")
@needs_golden
@pytest.mark.parametrize("mode", [[], ["--compat"]])
def test_recall_prints_a_row_per_hit(okf: Okf, mode: list[str]) -> None:
    done = okf("recall", "rye", "oven", "--root", BUNDLE, "--as-of", AT, "--mode", "bm25", *mode)
    assert (done.status, done.stderr) == (0, "")
    assert done.lines == [
        '# "rye oven" → top-5 [bm25, score=bm25]',
        "4.888  Concept    concepts/oven-schedule-v2 — Oven timetable",
        "2.150  Project    projects/bread-app — Bread app",
        "2.147  Concept    concepts/echo — Echo note",
        "1.266  User       entities/owner-ines — Ines Roy",
        "1.205  Concept    concepts/menu-now — What we sell now",
    ]


@pytest.mark.proves("okf-43")
@needs_golden
def test_recall_shows_what_is_stale_with_its_label(okf: Okf) -> None:
    done = okf("recall", "menu", "--root", BUNDLE, "--as-of", AT, "--mode", "bm25", "--include-superseded", "-k", "2")
    assert done.lines[1:] == [
        "1.857  Concept    concepts/menu-now — What we sell now",
        "1.149  Concept    concepts/summer-menu — Summer menu  ⤳ superseded (invalid_at 2026-05-15)",
    ]


@needs_golden
def test_recall_as_json_is_the_payload_of_a_search(okf: Okf) -> None:
    line = ("recall", "rye", "--root", BUNDLE, "--as-of", AT, "--json", "-k", "1", "--mode", "bm25")
    assert okf(*line).envelope("recall") == {
        "query": "rye",
        "mode": "bm25",
        "warning": None,
        "count": 1,
        "results": [
            {
                "id": "concepts/echo",
                "type": "Concept",
                "title": "Echo note",
                "score": 2.1474,
                "snippet": "Rye rye rye.",
                "hygiene": None,
            }
        ],
    }


@pytest.mark.proves("okf-55")
def test_without_embeddings_two_modes_fall_back_with_a_warning_and_one_is_refused(okf: Okf, small: Path) -> None:
    for mode in (["--mode", "hybrid"], ["--mode", "auto"], []):
        done = okf("recall", "quokka", "--root", small, "--json", *mode)
        data = done.envelope("recall")
        assert (done.status, data["mode"], data["count"]) == (0, "bm25", 1)
        assert data["warning"]
        assert done.stderr == f"⚠ {data['warning']}\n"
    done = okf("recall", "quokka", "--root", small, "--mode", "semantic")
    done.refused("no index of embeddings")
    assert done.stderr.splitlines()[1] == "hint: --mode bm25 needs no index"
    okf("recall", "quokka", "--root", small, "--mode", "fuzzy").refused("fuzzy")
    okf("recall", "index", "--root", small).refused("embeddings")
    okf("recall", "quokka", "--root", small, "--compat", "--mode", "hybrid").refused("hybrid")


@pytest.mark.proves("okf-57")
def test_a_limit_that_is_no_number_is_five_and_a_negative_one_is_refused(okf: Okf, tmp_path: Path) -> None:
    root = write(tmp_path / "bundle", {f"n{at}.md": node("Quokka.") for at in range(9)})
    for k in ("0", "x", "5", "5.9"):
        assert len(okf("recall", "quokka", "--root", root, "-k", k, "--mode", "bm25").lines) == 6
    assert len(okf("recall", "quokka", "--root", root, "-k", "7", "--mode", "bm25").lines) == 8
    okf("recall", "quokka", "--root", root, "-k", "-2").refused("-k")
    okf("recall", "quokka", "--root", root, "-k", "101").refused("-k: 1 to 100, not 101")


@pytest.mark.proves("okf-58")
def test_a_query_of_short_words_finds_nothing_and_is_no_mistake(okf: Okf, small: Path) -> None:
    done = okf("recall", "a", "b", "--root", small, "--mode", "bm25")
    assert (done.status, done.lines) == (0, ['# "a b" → top-5 [bm25, score=bm25]', "(nothing found)"])
    assert okf("recall", "--root", small).status == 0
    assert okf("recall").lines[0].startswith("usage:")


@pytest.mark.proves("okf-64")
@needs_golden
def test_expansion_adds_rows_and_leaves_the_others_as_they_are(okf: Okf) -> None:
    line = ("recall", "bread app", "--root", BUNDLE, "--as-of", AT, "--mode", "bm25", "-k", "1")
    plain = okf(*line)
    assert okf(*line, "--expand-hops", "0").stdout == plain.stdout
    assert "expanded" not in okf(*line, "--json").envelope("recall")
    expanded = okf(*line, "--expand", "--expand-budget", "2")
    assert expanded.lines == [
        *plain.lines,
        "  +hop  Decision   about       concepts/decision-cash — Cash stays  (+1 hop from projects/bread-app)",
        "  +hop  Plan       about       projects/plan-launch — Launch plan  (+1 hop from projects/bread-app)",
    ]
    further = okf(*line, "--expand-hops", "3", "--expand-budget", "2")
    assert further.stdout == expanded.stdout
    assert further.stderr.startswith("note: ")
    okf(*line, "--expand-hops", "far").refused("--expand-hops")
    rows = okf(*line, "--expand", "--json").envelope("recall")["expanded"]
    assert list(rows[0]) == ["id", "type", "title", "kind", "hop", "expandedFrom", "snippet"]


@pytest.mark.proves("okf-50")
def test_tiers_are_searched_when_they_are_asked_for_and_sources_left_out(okf: Okf, small: Path) -> None:
    write(small, {"mirror/engine/m.md": node("Quokka mirrored.", visibility="mirror", source="engine")})
    line = ("recall", "quokka", "--root", small, "--mode", "bm25", "--json")

    def found(*flags: str) -> set[str]:
        return {each["id"] for each in okf(*line, *flags).envelope("recall")["results"]}

    assert found() == {"concepts/new"}
    assert found("--include-secret") == {"concepts/new", "secret/s"}
    assert found("--include-inbox") == {"concepts/new", "inbox/agent"}
    assert found("--include-mirror") == {"concepts/new", "mirror/engine/m"}
    assert found("--include-mirror", "--exclude-source", "engine") == {"concepts/new"}


def test_help_loads_no_database_and_what_is_left_out_is_noted(okf: Okf, small: Path) -> None:
    code = "import sys; from memoree.cli.commands import run; from memoree.cli.invocation import Invocation; "
    code += "run(['okf', 'recall', '--help'], Invocation()); print({'apsw', 'yaml', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "set()"
    (small / "again").symlink_to(small, target_is_directory=True)
    assert okf("validate", small).stderr == "note: again is left out: it is a link to a folder\n"


def test_an_instant_that_is_none_is_refused(okf: Okf, small: Path) -> None:
    okf("recall", "quokka", "--root", small, "--as-of", "yesterday").refused("--as-of")


def test_the_ledger_heats_and_a_link_to_one_outside_does_not(okf: Okf, tmp_path: Path) -> None:
    event = {"ts": "2026-05-31T00:00:00Z", "actor": "a", "topic": "old", "phase": "step", "action": "x", "status": "ok"}
    files = {"old.md": node("Quokka.", timestamp="2020-01-01")}
    ledger = {"ledger/events.jsonl": "not json\n" + (json.dumps(event) + "\n") * 5}
    line = ("recall", "quokka", "--as-of", AT, "--mode", "bm25", "--root")
    cold = okf(*line, write(tmp_path / "cold", files)).lines[1]
    hot = okf(*line, write(tmp_path / "hot", files | ledger)).lines[1]
    assert float(hot.split()[0]) == pytest.approx(float(cold.split()[0]) / 0.75 * 0.6 * (1 + 0.5 * 29 / 30), abs=0.001)
    (tmp_path / "cold" / "ledger").symlink_to(tmp_path / "hot" / "ledger")
    assert okf(*line, tmp_path / "cold").lines[1] == cold


# --- the personal bundle ----------------------------------------------------------------------------------------------


@pytest.fixture
def personal(tmp_path: Path) -> Path:
    return write(
        tmp_path / "personal",
        {
            "concepts/new.md": node("Quokka of mine.", title="Mine"),
            "people/me.md": node("Quokka quokka, always.", title="Me", supersedes="/concepts/old.md"),
            "people/other.md": node("My quokka and a great many other words.", title="Other"),
        },
    )


@pytest.mark.proves("okf-66")
def test_a_personal_bundle_is_merged_by_parts_of_the_best(
    okf: Okf, small: Path, personal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("recall", "quokka", "--root", small, "--mode", "bm25", "--include-superseded")
    alone = okf(*line)
    monkeypatch.setenv("OKF_GLOBAL_ROOT", str(personal))
    merged = okf(*line)
    assert merged.stderr == "⚠ global:concepts/new stands behind concepts/new of the project\n"
    assert [line.split(" — ")[0].split() for line in merged.lines[1:]] == [
        ["1.000", "Concept", "concepts/new"],
        ["1.000", "Concept", "global:people/me"],
        [merged.lines[3].split()[0], "Concept", "global:people/other"],
        [merged.lines[4].split()[0], "Concept", "concepts/old"],
    ]
    scores = [float(line.split()[0]) for line in merged.lines[1:]]
    assert scores == sorted(scores, reverse=True)
    best, replaced = (float(row.split()[0]) for row in alone.lines[1:])
    assert scores[-1] == pytest.approx(replaced / best, abs=0.002), "each side is measured by its own best"
    results = okf(*line, "--json").envelope("recall")["results"]
    assert [(each["id"], each["source"]) for each in results] == [
        ("concepts/new", "project"),
        ("people/me", "global"),
        ("people/other", "global"),
        ("concepts/old", "project"),
    ]
    assert okf(*line, "-k", "2").lines[1:] == merged.lines[1:3]
    assert okf(*line, "--no-global") == alone
    monkeypatch.setenv("OKF_GLOBAL_ROOT", "")
    assert okf(*line) == alone


@pytest.mark.proves("okf-66")
def test_a_personal_bundle_without_hits_changes_nothing(
    okf: Okf, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("recall", "quokka", "--root", small, "--mode", "bm25")
    alone = okf(*line)
    monkeypatch.setenv("OKF_GLOBAL_ROOT", str(write(tmp_path / "other", {"x.md": node("Wombat.")})))
    assert okf(*line) == alone
    monkeypatch.setenv("OKF_GLOBAL_ROOT", str(tmp_path / "gone"))
    assert okf(*line).stdout == alone.stdout


def test_the_home_directory_is_searched_by_the_reference_program_only(okf: Okf, small: Path, tmp_path: Path) -> None:
    write(tmp_path / "home" / ".samemind" / "bundle", {"x.md": node("Quokka at home.")})
    line = ("recall", "quokka", "--root", small, "--mode", "bm25")
    assert "global:" not in okf(*line).stdout
    assert "global:x" in okf(*line, "--compat").stdout
    assert "global:" not in okf(*line, "--compat", "--no-global").stdout
