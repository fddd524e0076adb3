"""Reports of runs: HTML pages, charts, model cards."""
