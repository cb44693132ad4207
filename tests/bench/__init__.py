"""The benchmark: every number of the product beside the floor it stands on, measured in the same run.

`python -m bench` (through `scripts/bench`) runs it. One module in `ratios/` per ratio, listed in `registry`.
"""
