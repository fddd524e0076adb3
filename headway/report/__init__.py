"""Reports of runs: pages, charts, model cards."""
