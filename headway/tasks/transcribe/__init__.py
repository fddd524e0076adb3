"""Speech to text (Whisper)"""
