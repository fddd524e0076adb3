"""`headway run`."""
