"""The commit protocol under a simulated world: same seed, same run, byte for byte (docs/simulation.md)."""
