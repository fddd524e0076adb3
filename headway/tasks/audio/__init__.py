"""What tasks on sounds share"""
