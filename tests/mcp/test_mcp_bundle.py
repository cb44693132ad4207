"""The tools of the bundle on the golden bundle, as the store holds it."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp_support import CONTEXT, Json, Model, Shell, local_model

from memoree.mcp.endpoints import EndpointAsk, HeldStore
from okf.golden import BUNDLE

WRITES = {
    "memory_remember",
    "memory_forget",
    "claim_retract",
    "memory_write_inbox",
    "memory_ledger_append",
    "memory_fleet_assign",
}


@dataclass(frozen=True)
class Site:
    files: Path
    shell: Shell
    model: Model

    def ask(self, op: str, input: Json) -> Json:
        """An operation as any door runs it."""
        store = HeldStore(self.shell.data_dir)
        ask = EndpointAsk(store, {"context": CONTEXT, "context_source": "session"}, asyncio.Semaphore(1))
        try:
            return dict(asyncio.run(ask(op, input, None)))
        finally:
            store.close()

    def take_in(self) -> None:
        done = self.shell.run("okf", "import", str(self.files), "--include-mirror")
        assert done.returncode in (0, 1), done.stdout + done.stderr


def opened(directory: Path) -> Iterator[Site]:
    if not BUNDLE.is_dir():
        pytest.skip("the golden bundle is not part of this checkout")
    files = directory / "bundle"
    shutil.copytree(BUNDLE, files)
    with local_model(directory / "data", agent="Grok CLI!! v2") as model:
        site = Site(files, Shell(directory / "data"), model)
        site.take_in()
        yield site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from opened(tmp_path_factory.mktemp("golden"))


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """For tests that change it."""
    yield from opened(tmp_path)


def ids(found: Json) -> list[str]:
    return [each["id"] for each in found["results"]]


@pytest.mark.proves("okf-73")
def test_neighbours_are_told_when_they_are_asked_for(site: Site) -> None:
    query = "bread app"
    plain = site.model.ok("memory_search", query=query)
    assert "expanded" not in plain and plain["count"] == len(plain["results"]) > 0
    told = site.model.ok("memory_search", query=query, expand=True)
    assert told["results"] == plain["results"]
    assert told["expanded"]
    for row in told["expanded"]:
        assert {"id", "type", "title", "kind", "hop", "expandedFrom", "snippet"} <= set(row)
        assert row["hop"] == 1 and row["expandedFrom"] in ids(told) and row["id"] not in ids(told)


@pytest.mark.proves("okf-74")
def test_a_budget_of_one_is_one_row(site: Site) -> None:
    told = site.model.ok("memory_search", query="bread app", expand=True, expand_budget=1)
    assert len(told["expanded"]) == 1


@pytest.mark.proves("okf-75")
def test_a_note_is_found_by_any_of_its_names(site: Site) -> None:
    node_id = ids(site.model.ok("memory_search", query="rye"))[0]
    name = node_id.rsplit("/", 1)[1]
    answers = [site.model.ok("memory_get", id=given) for given in (f"/{node_id}.md", f"{node_id}.md", node_id, name)]
    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["found"] is True and answers[0]["id"] == node_id
    assert answers[0]["content"] == (site.files / f"{node_id}.md").read_text()
    assert site.model.ok("memory_get", id="concepts/nothing") == {"found": False, "id": "concepts/nothing"}


def test_a_name_that_leads_out_is_refused(site: Site) -> None:
    assert site.model.refused("memory_get", id="../../etc/passwd").startswith("Error [INVALID_ID]: ")


def hidden(files: Path, folder: str) -> set[str]:
    """Words that only stand in files of a folder, or in secret ones."""
    texts = {path: path.read_text() for path in files.rglob("*.md")}
    chosen = [
        path
        for path, text in texts.items()
        if path.relative_to(files).parts[0] == folder or (folder == "secret" and "visibility: secret" in text)
    ]
    elsewhere = " ".join(text for path, text in texts.items() if path not in chosen)
    found = {word for path in chosen for word in texts[path].split() if len(word) > 6 and word not in elsewhere}
    assert found, folder
    return found


@pytest.mark.proves("okf-76")
def test_nothing_secret_is_told_whatever_is_asked(own_site: Site) -> None:
    """Arguments are drawn from the words and the ids of secret files: the strongest hints a caller can have."""
    site, chance = own_site, random.Random(76)
    secret_ids = [
        path.relative_to(site.files).with_suffix("").as_posix()
        for path in site.files.rglob("*.md")
        if "visibility: secret" in path.read_text() or path.relative_to(site.files).parts[0] == "secret"
    ]
    words = sorted(hidden(site.files, "secret"))
    asked = [
        *words,
        *secret_ids,
        *(f"/{each}.md" for each in secret_ids),
        *(each.split("/")[-1] for each in secret_ids),
    ]
    model_tools = sorted(site.model.tools())
    assert "concepts/hidden" in secret_ids, "one that only its file calls secret"
    for topic in secret_ids:
        site.model.ok("memory_ledger_append", topic=topic, phase="fail", action="tried it")

    def answer() -> tuple[Json, str]:
        tool = chance.choice([tool for tool in model_tools if tool not in WRITES])
        word = chance.choice(asked)
        arguments: Json = {
            "memory_search": {"query": word, "k": 100, "expand": True, "include_superseded": True},
            "memory_get": {"id": word},
            "memory_list": chance.choice([{}, {"tag": word}, {"type": word}]),
            "memory_handoff": chance.choice([{}, {"project": word}]),
            "memory_retrieve": {"query": word},
            "memory_answer_pack": {"question": word},
            "context_build": {"query": word},
        }.get(tool, {})
        return arguments, site.model.call(tool, arguments).content[0].text  # type: ignore[union-attr]

    for _ in range(1000):
        arguments, text = answer()
        echoed = json.dumps(list(arguments.values()), ensure_ascii=False)
        for word in (*words, *secret_ids):
            assert word not in text or word in echoed, (arguments, word)


@pytest.mark.proves("okf-11", "okf-12")
def test_a_secret_is_one_however_it_is_written(own_site: Site) -> None:
    written = {
        "concepts/returns": b"---\r\ntype: Concept\r\nvisibility: secret\r\n---\r\nodd0 marker\r\n",
        "concepts/capital": b"---\ntype: Concept\nvisibility: Secret\n---\nodd1 marker\n",
        "concepts/quoted": b'---\ntype: Concept\nvisibility: "secret"\n---\nodd2 marker\n',
        "concepts/remark": b"---\ntype: Concept\nvisibility: secret # until May\n---\nodd3 marker\n",
        "concepts/unknown": b"---\ntype: Concept\nvisibility: team-only\n---\nodd4 marker\n",
        "concepts/secret/nested": b"---\ntype: Concept\n---\nodd5 marker\n",
        "concepts/marked": b"\xef\xbb\xbf---\ntype: Concept\nvisibility: secret\n---\nodd6 marker\n",
    }
    for node_id, data in written.items():
        file = own_site.files / f"{node_id}.md"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
    open_one = own_site.files / "concepts" / "open.md"
    open_one.write_bytes(b"---\r\ntype: Concept\r\n---\r\nodd7 marker\r\n")
    own_site.take_in()
    found = own_site.model.ok("memory_search", query="marker odd0 odd1 odd2 odd3 odd4 odd5 odd6", k=100)
    assert ids(found) == ["concepts/open"], "the sound one proves that the rest could have been found"
    assert not ids(own_site.model.ok("memory_search", query="marker", k=100, include_superseded=True))[1:]
    for node_id in written:
        assert own_site.model.ok("memory_get", id=node_id) == {"found": False, "id": node_id}
    listed = {each["id"] for each in own_site.model.ok("memory_list")["items"]}
    assert listed.isdisjoint(written) and "concepts/open" in listed


@pytest.mark.proves("okf-77")
def test_the_inbox_is_out_of_reach(own_site: Site) -> None:
    site = own_site
    told = site.model.ok("memory_write_inbox", content="The zanzibarite shipment is late.", title="Shipment")
    assert (told["ok"], told["agent"], told["file"]) == (True, "grok-cli-v2", "inbox/grok-cli-v2.md")
    words = ["zanzibarite", *sorted(hidden(site.files, "inbox"))[:20]]
    for word in words:
        assert ids(site.model.ok("memory_search", query=word)) == []
        assert site.model.ok("memory_retrieve", query=word)["presence"] == "none"
        assert word not in json.dumps(site.model.ok("memory_answer_pack", question=word)["nodes"])
    listed = [item["id"] for item in site.model.ok("memory_list")["items"]]
    assert not [each for each in listed if each.startswith("inbox")]
    for name in ("grok-cli-v2", "inbox/grok-cli-v2", told["entry_id"]):
        assert site.model.ok("memory_get", id=name)["found"] is False
    assert told["entry_id"] not in json.dumps(site.model.ok("memory_browse", limit=100))


@pytest.mark.proves("okf-78")
def test_mirrors_are_found_and_read(site: Site) -> None:
    (path,) = list((site.files / "mirror").rglob("*.md"))[:1]
    node_id = path.relative_to(site.files).with_suffix("").as_posix()
    word = path.read_text().split()[-1].strip(".")
    assert node_id in ids(site.model.ok("memory_search", query=word, k=20))
    assert site.model.ok("memory_get", id=node_id)["visibility"] == "mirror"


@pytest.mark.proves("okf-79")
def test_a_file_that_was_edited_and_taken_in_is_seen_by_the_next_call(own_site: Site) -> None:
    path = own_site.files / "concepts" / "echo.md"
    assert ids(own_site.model.ok("memory_search", query="quokkabread")) == []
    path.write_text(path.read_text() + "\nNow with quokkabread.\n")
    own_site.take_in()
    assert ids(own_site.model.ok("memory_search", query="quokkabread")) == ["concepts/echo"]
    assert "quokkabread" in own_site.model.ok("memory_get", id="concepts/echo")["content"]


@pytest.mark.proves("okf-80")
def test_every_id_a_search_returns_can_be_read(site: Site) -> None:
    found = set()
    for query in ("rye", "menu", "lumen", "van lighthouse", "plan", "flour supplier", "кофе", "task"):
        told = site.model.ok("memory_search", query=query, k=50, expand=True, include_superseded=True)
        found |= {*ids(told), *(row["id"] for row in told["expanded"])}
    assert len(found) > 10
    assert all(site.model.ok("memory_get", id=each)["found"] for each in found)


@pytest.mark.proves("okf-83")
def test_the_tiers_of_heat_are_all_the_notes(site: Site) -> None:
    health = site.model.ok("memory_health")
    assert sum(health["heatTiers"].values()) == health["concepts"] == 28


# --- every argument has an effect -----------------------------------------------------------------------------------


def test_every_argument_of_the_search_has_an_effect(site: Site) -> None:
    def search(**more: object) -> Json:
        return site.model.ok("memory_search", **{"query": "menu", **more})

    plain = search()
    assert search(query="rye")["results"] != plain["results"]
    assert search(k=1)["results"] == plain["results"][:1]
    assert search(include_superseded=True)["results"] != plain["results"]
    assert search(as_of="2026-05-14T00:00:00Z")["results"] != search(as_of="2027-06-01T00:00:00Z")["results"]
    assert search(mode="hybrid")["warning"] and not search(mode="bm25")["warning"]
    assert site.model.refused("memory_search", query="menu", mode="semantic").startswith("Error [INVALID_ARGUMENT]")
    assert "personal" in search(no_global=False)["warning"]
    sources = {each: search(query="rye echo flour van", k=50, exclude_source=each) for each in ("claude-code", "none")}
    assert sources["claude-code"]["results"] != sources["none"]["results"]


def test_every_argument_of_the_others_has_an_effect(site: Site) -> None:
    everything = site.model.ok("memory_list")
    plans = site.model.ok("memory_list", type="plan")
    assert 0 < plans["count"] < everything["count"]
    assert {item["type"] for item in plans["items"]} == {"Plan"}
    assert site.model.ok("memory_list", tag="no such tag")["count"] == 0
    long, short = site.model.ok("memory_handoff", days=3000), site.model.ok("memory_handoff", days=1)
    assert (long["days"], short["days"]) == (3000, 1)
    assert len(long["sections"]["decisions"]) > len(short["sections"]["decisions"])
    assert site.model.ok("memory_handoff", project="bread-app")["project"]
    pack = site.model.ok("memory_answer_pack", question="bread app")
    assert site.model.ok("memory_answer_pack", question="rye")["cite"] != pack["cite"]
    assert len(json.dumps(site.model.ok("memory_answer_pack", question="bread app", token_budget=500))) < len(
        json.dumps(pack)
    )
    past = site.model.ok("memory_answer_pack", question="menu", as_of="2026-05-14T00:00:00Z")
    assert past["cite"] != site.model.ok("memory_answer_pack", question="menu", as_of="2027-06-01T00:00:00Z")["cite"]


def test_every_argument_of_an_event_is_kept(own_site: Site) -> None:
    event: Json = {"topic": "concepts/echo", "phase": "step", "action": "baked", "status": "wip", "artifact": "loaf/1"}
    first = own_site.model.ok("memory_ledger_append", **event, ref="batch-1")
    assert (first["actor"], first["status"], first["phase"]) == ("grok-cli-v2", "wip", "step")
    assert own_site.model.ok("memory_ledger_append", **{**event, "action": "again"}, ref="batch-1")["deduped"] is True
    (topic,) = [
        each for each in own_site.model.ok("memory_ledger_status")["topics"] if each["topic"] == "concepts/echo"
    ]
    assert (topic["count"], topic["open"]) == (1, False)
    events = own_site.ask("ledger.read", {"topic": "concepts/echo"})["events"]
    assert events[0].items() >= {"action": "baked", "artifact": "loaf/1", "ref": "batch-1"}.items()


@pytest.mark.fault_class(12)
def test_a_proposal_that_is_sent_twice_in_a_minute_is_one(own_site: Site) -> None:
    proposals = [own_site.model.ok("memory_write_inbox", content="the same words") for _ in range(3)]
    assert len({each["entry_id"] for each in proposals}) <= 2  # the minute may end in between
    other = own_site.model.ok("memory_write_inbox", content="the same words", title="but a title")
    assert other["entry_id"] not in {each["entry_id"] for each in proposals}
