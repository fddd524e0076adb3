"""Tables of decoders"""
