"""Front ends: token ids, images, sounds and conditions to the vectors that a stack reads"""
