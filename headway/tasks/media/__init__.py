"""What tasks on images and tasks on sounds share"""
