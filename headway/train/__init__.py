"""Training. The package is also a verb: `headway.train("tiny", steps=100)`."""
