"""Queue-driven ingestion: connectors put messages on a queue of their own, and a worker makes `source.*` commands of
them (`docs/ingest.md`).

A connector is a process with its own credentials that knows the queue and never the store. What it publishes is either
applied exactly once or told in the dead letters, with the reason.
"""
