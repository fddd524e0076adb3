"""What `headway data` says about a file."""
