"""Tables of numbers over time"""
