"""How strictly files are read: as the reference program does, or as this service does."""

from __future__ import annotations

from enum import Enum


class Dialect(Enum):
    """`COMPAT` reproduces the reference program byte for byte, so that a bundle can be checked against its answers;
    `SERVICE` reads what people really write, and fails closed (OKF contract §0.1)."""

    COMPAT = "compat"
    SERVICE = "service"
