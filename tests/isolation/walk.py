"""Random work of all tenants at once, at any server: each does what it can, and asks for what it heard of others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random

import orjson

from isolation.caller import Caller, Callers, Json, envelope
from isolation.names import ALIKE
from isolation.things import (
    LARGE_BYTES,
    SILENT,
    SURFACES,
    Things,
    listed,
    made_by,
    of_nobody,
    put_of,
    text_of,
    uploaded,
)
from memoree.ids import new_ulid

SHARED_SOURCE = "kiln:log"
"""Episodes of every tenant have this source."""
SHARED_BODY = "cone 6 reached at 21:40"
ITEMS_OF_A_PAGE = 20
LOOK_AROUND_EVERY = 25


@dataclass
class Household:
    """What a tenant has by now, as it knows itself."""

    caller: Caller
    things: Things
    artifacts: list[Json] = field(default_factory=list)
    claims: list[Json] = field(default_factory=list)
    episodes: dict[str, str] = field(default_factory=dict)
    """By id, their text."""
    commits: int = 0
    """After its last step."""


class Walk:
    """Seeded steps, each inside the block of what `around` makes of its tenant."""

    def __init__(
        self,
        callers: Callers,
        random: Random,
        around: Callable[[str], AbstractContextManager[None]] = lambda _tenant: nullcontext(),
    ) -> None:
        self._random, self._around = random, around
        self._homes = {name: Household(caller, made_by(caller)) for name, caller in callers.by_tenant.items()}
        for home in self._homes.values():
            home.commits = commits(home.caller)

    def run(self, steps: int) -> None:
        for number in range(steps):
            home = self._homes[self._random.choice(ALIKE)]
            assert commits(home.caller) == home.commits, "another tenant's work counts here"
            step = self._random.choice(STEPS)
            neighbours = (
                [] if number % LOOK_AROUND_EVERY else [each for each in self._homes.values() if each is not home]
            )
            before = [overview(each.caller) for each in neighbours]
            with self._around(home.caller.tenant):
                step(self, home)
            assert [overview(each.caller) for each in neighbours] == before, f"{step.__name__} changed a neighbour"
            home.commits = commits(home.caller)

    # --- one step -----------------------------------------------------------------------------------------------

    def store(self, home: Household) -> None:
        """Also bytes that another tenant has, under a key that another tenant used."""
        caller, key = home.caller, home.caller.fresh_key()
        body = self._random.choice(
            [caller.text(), SHARED_BODY, caller.text("large ").encode().ljust(LARGE_BYTES, b"."), b"\xff" * LARGE_BYTES]
        )
        stored = caller.ok("artifact.put", put_of(body), key=key)
        assert stored["created"], "the key was of another tenant"
        assert caller.ok("artifact.put", put_of(body), key=key)["artifact_id"] == stored["artifact_id"]
        home.artifacts.append(stored)

    def upload(self, home: Household) -> None:
        upload_id = uploaded(home.caller, home.caller.text("sent").encode())
        content = {"type": "upload", "upload_id": upload_id}
        home.artifacts.append(home.caller.ok("artifact.put", {"kind": "file", "title": "sent", "content": content}))

    def assert_something(self, home: Household) -> None:
        claim = {"claim_type": "fact", "statement": home.caller.text("claim")}
        home.claims.append(home.caller.ok("claim.assert", claim))
        if len(home.claims) > 1:
            edge = {"source_type": "claim", "source_id": home.claims[-2]["claim_id"], "relation": "contradicts"}
            home.caller.ok("relation.put", edge | {"target_type": "claim", "target_id": home.claims[-1]["claim_id"]})

    def revise(self, home: Household) -> None:
        if (artifact := self._some(home.artifacts)) is not None:
            revision = {"artifact_id": artifact["artifact_id"], "if_revision": artifact["revision_id"]}
            artifact.update(home.caller.ok("artifact.revise", revision | {"content": text_of(home.caller.text())}))

    def forget(self, home: Household) -> None:
        if home.artifacts:
            gone = home.artifacts.pop(self._random.randrange(len(home.artifacts)))
            home.caller.ok("artifact.forget", {"artifact_id": gone["artifact_id"], "reason": home.caller.text()})

    def ingest(self, home: Household) -> None:
        episode_id, text = new_ulid(), home.caller.text("episode")
        told = {"id": episode_id, "source": SHARED_SOURCE, "content": text}
        answer = home.caller.request("POST", "/v1/ingest", told)
        assert answer.status_code == 200, answer.text
        home.episodes[episode_id] = text

    def forget_episodes(self, home: Household) -> None:
        """In two steps and for good, by the source that all tenants use."""
        target = {"Scope": {"BySource": SHARED_SOURCE}}
        preview = home.caller.request("POST", "/v1/forget", {"target": target, "dry_run": True})
        assert preview.json()["matched"] == len(home.episodes), "others' episodes were counted"
        confirmed = {"target": target, "hard": True, "confirmation_token": preview.text}
        done = home.caller.request("POST", "/v1/forget", confirmed)
        assert (done.status_code, done.json()["matched"]) == (200, len(home.episodes))
        home.episodes.clear()

    def read_episodes(self, home: Household) -> None:
        for episode_id, text in home.episodes.items():
            assert home.caller.request("GET", f"/v1/episode/{episode_id}").json()["content"] == text
        hits = home.caller.request("POST", "/v1/recall", {"query": "episode", "filter": f"source = '{SHARED_SOURCE}'"})
        assert {hit["episode_id"] for hit in hits.json()} <= home.episodes.keys()
        stream = home.caller.request("POST", "/v1/recall", {"query": "episode"}, {"Accept": "text/event-stream"})
        assert stream.text.endswith("event: done\ndata: {}\n\n")

    def search(self, home: Household) -> None:
        """With words that everybody has, and with slips of the pen in them."""
        query = self._random.choice(["glaze", "claim", "large glaze claim", "glazze", "cone 6", home.caller.word])
        for op in ("search", "memory.recall", "memory.probe", "memory.retrieve", "context.build"):
            home.caller.ok(op, {"query": query, "horizon": "personal", "reason": "to see all there is"})
        home.caller.ok("conflict.list", {})
        home.caller.ok("feedback.list", {})
        home.caller.ok("feedback.export", {})

    def in_bulk(self, home: Household) -> None:
        wanted = [put_of(home.caller.text("bulk")) for _ in range(3)]
        lines = [envelope("artifact.put", each, home.caller.fresh_key()) for each in wanted]
        body = b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)
        answer = home.caller.request("POST", "/v1/bulk", body, {"Content-Type": "application/x-ndjson"})
        told = [orjson.loads(line) for line in answer.content.splitlines()]
        assert [each["ok"] for each in told] == [True] * len(lines)
        home.artifacts.extend(each["result"] for each in told)

    def renew(self, home: Household) -> None:
        home.things = made_by(home.caller)

    def pry(self, home: Household) -> None:
        """Ask for what another has, as if it were one's own, and be answered as if nobody had it."""
        owner = self._random.choice([each for each in self._homes.values() if each is not home])
        surface = self._random.choice([each for each in SURFACES if each not in SILENT])
        theirs, nobodys = owner.things, of_nobody(owner.things)
        told, expected = (SURFACES[surface](home.caller, names) for names in (theirs, nobodys))
        assert told.status_code == expected.status_code, f"{surface}: {told.text[:500]}\n{expected.text[:500]}"

    def _some(self, of: list[Json]) -> Json | None:
        return self._random.choice(of) if of else None


STEPS: tuple[Callable[[Walk, Household], None], ...] = (
    Walk.store,
    Walk.upload,
    Walk.assert_something,
    Walk.revise,
    Walk.forget,
    Walk.ingest,
    Walk.ingest,
    Walk.forget_episodes,
    Walk.read_episodes,
    Walk.search,
    Walk.in_bulk,
    Walk.renew,
    Walk.pry,
    Walk.pry,
    Walk.pry,
)


def commits(caller: Caller) -> int:
    number: int = caller.ok("doctor")["last_commit_seq"]
    return number


def overview(caller: Caller) -> Json:
    """All that a tenant has, by every list there is."""
    now = f"{time.time_ns() // 1_000_000}.4294967295"
    return {
        **{name: list(walked(caller, name)) for name in ("artifacts", "claims", "relations")},
        "episodes": sorted(caller.request("GET", f"/v1/snapshot/{now}").content.splitlines()),
        "commits": commits(caller),
        "events": list(followed(caller)),
        "feedback": caller.ok("feedback.list", {"limit": 100}),
        "conflicts": caller.ok("conflict.list", {"limit": 100}),
    }


def walked(caller: Caller, name: str) -> Iterator[Json]:
    """Page by page."""
    wide = {"horizon": "personal", "reason": "overview", "limit": ITEMS_OF_A_PAGE}
    cursor: str | None = ""
    while cursor is not None:
        page = caller.request("GET", listed(name, **wide, **({"cursor": cursor} if cursor else {}))).json()
        yield from page["items"]
        cursor = page["next_cursor"]


def followed(caller: Caller) -> Iterator[Json]:
    """Everything that was ever committed."""
    after, page = 0, caller.request("GET", "/v1/events?after=0").json()
    while page["events"]:
        yield from page["events"]
        after = page["next_after"]
        page = caller.request("GET", f"/v1/events?after={after}").json()
