"""Images and texts in one space: retrieval, search, zero-shot classification"""
