"""Files of any format, read as rows."""
