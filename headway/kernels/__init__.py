"""Kernels that modules of any model use, each with its plain twin"""
