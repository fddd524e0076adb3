"""`headway run`: generate text, or predict."""
