"""A label for each word: entities, parts of speech."""
