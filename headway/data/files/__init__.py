"""Files of any format to rows."""
