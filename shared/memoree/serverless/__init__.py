"""Memoree as functions (AWS Lambda): events in, answers out, and state that outlives an event but is never trusted.

Each module is one idea; `functions/` ties them to handlers. Nothing here decides anything about memory: a function
hands its event to the same api, worker or job that a process runs.
"""
