"""Data sets: fetch, check, read and cache them; and make the sounds of generated recordings.

Of milbench itself this package may import `milbench.errors` and `milbench._utils` only.
"""
