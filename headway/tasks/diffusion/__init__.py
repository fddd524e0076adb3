"""Images drawn from noise, for a class"""
