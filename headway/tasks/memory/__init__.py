"""Questions about stories: memory networks, and a transformer beside them"""
