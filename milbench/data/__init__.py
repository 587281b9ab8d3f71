"""Data sets: where their files come from, how they are checked, read, cropped and cached; generated sounds.

It may import `milbench.errors` and `milbench._utils`.
"""
