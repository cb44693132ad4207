"""Random work of tenants with like names: nobody is told, counts, logs or stores anything of another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from isolation.conftest import BURST, Town
from isolation.names import ALIKE, token_of, word_of
from isolation.site import is_of
from isolation.walk import Walk
from memoree.replication.ltx import decode

STEPS = 120
STEPS_AT_NIGHT = 6000
DEPLOYMENTS_OWN = re.compile(r"keys/cursors|canaries/[0-9A-Z]{26}|tenants/")
OF_REIGNS = re.compile(r"tenants/[^/]+/(head\.json|(ltx|epochs)/.*)")
"""The writer looks after every tenant that it holds, at times of its own, such as a while after an erasure."""


@pytest.mark.timeout(300)
@pytest.mark.proves("isolation-1", "isolation-2", "isolation-4")
@pytest.mark.fault_class(24)
@pytest.mark.fault_class(25)
@pytest.mark.fault_class(26)
@pytest.mark.parametrize("seed", [1])
def test_no_tenant_meets_anything_of_another(town: Town, seed: int) -> None:
    strolled(town, seed, STEPS)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.proves("isolation-1", "isolation-2", "isolation-4")
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_no_tenant_meets_anything_of_another_in_a_long_walk(town: Town, seed: int) -> None:
    strolled(town, seed, STEPS_AT_NIGHT)


def strolled(town: Town, seed: int, steps: int) -> None:
    walk = Walk(town.callers, Random(seed), partial(own_prefix_only, town))
    walk.run(steps)
    check_rates(town)
    check_metrics(town)
    check_logs(town.logged)
    check_bucket(town.site.directory / "bucket")
    check_local_paths(town.site.directory)


@contextmanager
def own_prefix_only(town: Town, tenant: str) -> Iterator[None]:
    """In the block the store is asked for nothing outside of the tenant's prefix."""
    town.site.watch.take()
    yield
    touches, _ = town.site.watch.take()
    others = [each for each in touches if not (is_of(tenant, each.key) or DEPLOYMENTS_OWN.fullmatch(each.key))]
    astray = [each for each in others if each.who == "api" or not OF_REIGNS.fullmatch(each.key)]
    assert astray == [], f"{tenant} touched {astray[:5]}"


def check_rates(town: Town) -> None:
    """With a second per token, what is left is at least what the tenant's own requests left of it."""
    for caller in town.callers.by_tenant.values():
        spent = caller.heard.requests
        left = int(caller.request("POST", "/v1/recall", {"query": ""}).headers["ratelimit-remaining"])
        assert left >= BURST - spent - 1, "somebody else's requests were counted"


def check_metrics(town: Town) -> None:
    told = httpx.get(f"{town.callers.base_url}/metrics", trust_env=False, timeout=60.0).text
    check_told_to_all(told)
    labels = {
        value
        for family in text_string_to_metric_families(told)
        for sample in family.samples
        for name, value in sample.labels.items()
        if name == "tenant"
    }
    assert labels <= set(ALIKE)


def check_logs(lines: list[str]) -> None:
    assert len(lines) > STEPS, "requests are logged"
    for line in lines:
        check_told_to_all(line)


def check_told_to_all(text: str) -> None:
    """Tenants may be named. What they stored may not, nor the tokens they came with."""
    lowered = text.casefold()
    for tenant in ALIKE:
        assert word_of(tenant) not in lowered, text[:2000]
        assert token_of(tenant) not in text


def check_bucket(bucket: Path) -> None:
    """Objects below a tenant's prefix hold nothing of another's, nor do the pages of its database."""
    for path in sorted(bucket.glob("tenants/*/**/*")):
        if path.is_file():
            owner = path.relative_to(bucket).parts[1]
            raw = path.read_bytes()
            if path.suffix == ".ltx":
                raw = b"".join(page for _, page in decode(raw).pages())
            body = raw.decode("latin-1").casefold()
            strangers = [each for each in ALIKE if each != owner and word_of(each) in body]
            assert owner in ALIKE and not strangers, f"{path} holds something of {strangers}"


def check_local_paths(directory: Path) -> None:
    """Two tenants share no path on a disk that does not tell `a` from `A`."""
    for kind in ("replicas", "epochs"):
        tops = list(directory.glob(f"{kind}/*/*/*" if kind == "replicas" else f"{kind}/*/*"))
        folded = {path.name.casefold() for path in tops}
        assert len(folded) == len(tops) >= len(ALIKE)
