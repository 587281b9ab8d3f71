"""Data sets: where their files come from, how they are checked, read, cropped and cached.

It may import `milbench.errors` and `milbench._utils`.
"""
