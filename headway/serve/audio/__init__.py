"""Sound in requests: forms with files, transcriptions"""
