"""How a caller reaches a store: a request, an endpoint to send it to, an answer that is certainly an envelope.

Modules here load quickly: a shell command pays for every import of its endpoint, and for no other.
"""
