"""What the page X-ray asks of a model; the page Learn asks the same."""
