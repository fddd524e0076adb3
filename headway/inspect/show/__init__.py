"""What an inspection shows: in a terminal, and as a page."""
