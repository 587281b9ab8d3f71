"""Data sets: where their files come from, how they are checked, read, cropped and cached.

This package may import `milbench.errors` and `milbench._utils`.
"""
