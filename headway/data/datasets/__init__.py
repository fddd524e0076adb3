"""From rows to examples, one module per kind of dataset."""
