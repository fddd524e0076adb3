"""The playground: which models there are, what each can do, and doing it."""
