"""The studio: headway in a browser, on this machine alone."""
