"""Browsing without a query: what a scope holds, newest first, page by page.

These reads run like operations, on one snapshot, but are none of the machine protocol's: its catalogue does not know
them, only the HTTP door offers them.
"""
