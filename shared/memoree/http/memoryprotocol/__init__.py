"""The routes of MemoryProtocol 0.1 (`docs/memoryprotocol.md`): its own bodies, its own words for what went wrong."""
