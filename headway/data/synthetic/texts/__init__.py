"""Made-up texts"""
