"""Whether a store is whole: one snapshot of its database against itself, and its blobs (machine protocol §4.36,
design §8). One module per idea, each a function `issues(db)` that tells what it finds as it finds it."""
