"""What tasks with a vision encoder share"""
