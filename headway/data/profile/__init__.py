"""The report of `headway data` about a dataset."""
