"""Self-distillation without labels (DINO)"""
