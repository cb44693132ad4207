"""Settings that no deployment can have meant are refused before anything starts."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from memoree.settings import StackSettings

SOUND = {"bucket": "b", "queue_url": "sqlite:///q", "runtime_dir": "/r"}


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, field in StackSettings.model_fields.items()
        if name.startswith(("lease", "visibility", "ingest_v"))
    ],
)
def test_a_time_that_is_none_is_refused(name: str, seconds: float) -> None:
    with pytest.raises(ValidationError, match=name):
        StackSettings(**SOUND, **{name: seconds})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"lease_ttl_seconds": 5, "lease_renew_seconds": 5},
        {"ingest_queue_url": "sqlite:///q"},
        {"snapshot_retention_seconds": 3600, "point_in_time_seconds": 7200},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="must be"):
        StackSettings(**SOUND, **settings)  # type: ignore[arg-type]


def test_what_is_left_out_is_sound() -> None:
    assert StackSettings(**SOUND).lease_renew_seconds < StackSettings(**SOUND).lease_ttl_seconds  # type: ignore[arg-type]
