"""Retrieval: how text is indexed, how a query is read, and which revisions answer it, in which order."""
