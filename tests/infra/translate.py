"""Run by .venv-lambda's Python: the CloudFormation that AWS makes of a SAM template; JSON in, JSON out."""

from __future__ import annotations

import json
import sys
from typing import Any

from samtranslator.translator.transform import transform

PACKAGED = "s3://packages/package.zip"
"""Where `sam deploy` would have put the zips."""


class NoManagedPolicies:
    """The template attaches none, so that none need be looked up."""

    def load(self) -> dict[str, str]:
        return {}


def main(template: dict[str, Any]) -> None:
    for resource in template["Resources"].values():
        for name in ("CodeUri", "ContentUri"):
            if name in resource.get("Properties", {}):
                resource["Properties"][name] = PACKAGED
    json.dump(transform(template, {}, NoManagedPolicies()), sys.stdout)


if __name__ == "__main__":
    main(json.load(sys.stdin))
