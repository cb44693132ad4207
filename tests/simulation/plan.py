"""What a seed stands for: who takes part, how bad the weather is, and which disasters happen when."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from simulation.litestream import Habits
from simulation.queue import QueueWeather
from simulation.store import Weather

LONG_EVERY = 40
"""One run of so many is a long one."""
CLOCK_OFFSET_SECONDS_MAX = 600.0
HURRIED_OFFSET_SECONDS_MAX = 5.0
"""Where the collector's intervals are shortened, in the same proportion."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Seconds are virtual."""

    tenants: int
    is_born: bool
    """Whether tenants begin with nothing at all, instead of a settled epoch."""
    writers: int
    apis: int
    clients: int
    writes_per_client: int
    thinking_seconds: float
    weather: Weather
    queue_weather: QueueWeather
    habits: Habits
    page_keys_max: int
    disasters: int
    """How many each writer meets."""
    callbacks_between: int
    """Of the process that it hits, before a disaster: on average."""
    at_head_share: float
    """Of the writers' disasters: so many come just before head is to be moved."""
    api_deaths: int
    clock_offset_seconds_max: float
    settle_after_idle: float
    collects: bool
    """Whether garbage is collected meanwhile."""
    loses_head: bool
    """Whether somebody removes head in the end."""

    @classmethod
    def of(cls, random: Random, *, is_long: bool) -> Plan:
        def perhaps(share: float, value: float) -> float:
            return value * random.random() if random.random() < share else 0.0

        collects = random.random() < 0.03
        return cls(
            tenants=2 if random.random() < 0.15 else 1,
            is_born=random.random() < 0.08,
            writers=2 if random.random() < 0.6 else 1,
            apis=2 if is_long or random.random() < 0.25 else 1,
            clients=3 if is_long else random.choice((1, 1, 2)),
            writes_per_client=8 if is_long else random.randint(2, 4),
            thinking_seconds=random.choice((0.0, 0.3, 1.0)),
            weather=Weather(
                lost=perhaps(0.2, 0.03),
                answer_lost=perhaps(0.3, 0.06),
                late=perhaps(0.2, 0.03),
                refused=perhaps(0.2, 0.06),
                slow=random.choice((0.0, 0.0, 0.01, 0.05)),
            ),
            queue_weather=QueueWeather(lost=perhaps(0.2, 0.1), answer_lost=perhaps(0.2, 0.1)),
            habits=Habits(
                own_change=perhaps(0.5, 0.6),
                compaction=perhaps(0.4, 0.5),
                ambiguous=perhaps(0.2, 0.3),
                death=perhaps(0.2, 0.2),
                orphan_seconds_max=random.choice((0.2, 3.0, 15.0)),
            ),
            page_keys_max=random.choice((2, 1000)),
            disasters=random.choice((2, 3, 5)) if is_long else random.choice((0, 1, 1, 1, 2)),
            callbacks_between=random.choice((30, 120, 300)),
            at_head_share=0.3,
            api_deaths=random.choice((0, 0, 0, 1, 2)),
            clock_offset_seconds_max=perhaps(0.3, HURRIED_OFFSET_SECONDS_MAX if collects else CLOCK_OFFSET_SECONDS_MAX),
            settle_after_idle=random.choice((0.5, 5.0, 60.0)),
            collects=collects,
            loses_head=random.random() < 0.04,
        )
