"""The tokens file, wherever it is kept: what stands in it, how it is followed, and how it is changed."""
