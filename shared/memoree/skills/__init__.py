"""How agents are taught to use this memory: the texts, and where each client looks for them."""
