"""How a tenant's database leaves this host and comes back: the Litestream child and its LTX files.

This package imports nothing here: `launcher` starts beside every child process and must stay small.
"""
