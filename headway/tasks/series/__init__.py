"""What the tasks on series of numbers share"""
