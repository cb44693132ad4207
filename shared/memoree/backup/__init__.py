"""Copies of a store that are whole or not there: backups of the embedded profile, and what a migration began with."""
