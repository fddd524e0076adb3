"""Tables of encoders that differ from BERT in more than names."""
