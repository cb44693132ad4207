"""Bundles of files into a store and out of it: what changed, what is sent, and what the store is told."""
