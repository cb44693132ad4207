"""The programs of the stack profile, run as children: where they listen, how they start, how they end."""
