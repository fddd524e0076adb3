"""headway: a transformer workbench."""
