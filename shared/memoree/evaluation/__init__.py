"""An evaluation of retrieval that anybody can run: a corpus of stored items and questions, and what is counted.

`corpus` reads it, `seeding` stores it, `surfaces` asks every operation, `exactness` follows every citation, `judging`
holds the answers of one case against what it expects, `metrics` and `report` add up. Everything goes through requests
of the protocol, so that any server can be evaluated.
"""
