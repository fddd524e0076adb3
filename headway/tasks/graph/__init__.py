"""Labels and numbers for graphs and their nodes"""
