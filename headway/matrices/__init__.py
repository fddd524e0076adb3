"""Linear maps: plain, in whole numbers of one byte, and with something learned beside them."""
