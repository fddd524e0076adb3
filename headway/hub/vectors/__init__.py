"""Word vectors in one file, as word2vec and other programs write them"""
