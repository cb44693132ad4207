"""Work that runs on a schedule or by an operator's hand: backups, restores, verification, garbage collection, erasure.

A job is a client of the store and no part of it: it reads snapshots as any reader does, and what it wants changed it
asks the tenant's writer for. Only a restore takes a reign of its own.
"""
