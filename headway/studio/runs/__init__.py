"""What the pages of runs show: the list, the curves, one run, several runs compared."""
