"""Files of rows, read as blocks of columns."""
