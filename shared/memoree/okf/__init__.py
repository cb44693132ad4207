"""OKF bundles: directories of Markdown that people and agents keep as their memory (OKF contract §1)."""
