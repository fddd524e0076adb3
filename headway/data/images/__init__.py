"""Images: found, decoded, resized once into a file that is mapped into memory, and augmented"""
