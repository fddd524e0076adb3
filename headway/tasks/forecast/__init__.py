"""What comes next in a table of numbers over time"""
