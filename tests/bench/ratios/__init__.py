"""One module per ratio. Each says what it measures, and against what."""
