"""The words of MemoryProtocol 0.1: positions in time, filters, targets. They know no database and no door."""
