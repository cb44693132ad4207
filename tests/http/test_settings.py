from __future__ import annotations

import pytest

from memoree.errors import Code, MemoreeError
from memoree.http.settings import HttpSettings


def test_the_environment_sets_what_an_operator_may_choose() -> None:
    settings = HttpSettings.from_environment(
        {
            "MEMOREE_TOKENS_FILE": "/run/tokens.json",
            "MEMOREE_RATE_PER_SECOND": "7.5",
            "MEMOREE_RATE_BURST": "9",
            "MEMOREE_API_PROCESSES": "2",
            "MEMOREE_CORS_ORIGINS": "https://a.example",
            "MEMOREE_ACCESS_LOG": "yes",
        }
    )
    assert str(settings.tokens_file) == "/run/tokens.json"
    assert (settings.rate_per_second, settings.rate_burst, settings.processes) == (7.5, 9, 2)
    assert (settings.cors_origins, settings.access_log) == (("https://a.example",), True)
    assert settings.metrics_on_main_port is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RATE_PER_SECOND", "fast"),
        ("RATE_PER_SECOND", "nan"),
        ("RATE_BURST", "-1"),
        ("API_PROCESSES", "0.5"),
        ("ACCESS_LOG", "maybe"),
    ],
)
def test_a_value_of_the_wrong_kind_is_a_config_error(name: str, value: str) -> None:
    with pytest.raises(MemoreeError) as refused:
        HttpSettings.from_environment({f"MEMOREE_{name}": value})
    assert refused.value.code is Code.CONFIG_ERROR
