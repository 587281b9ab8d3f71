"""Runs as one file that another store takes in: `milbench export` and `milbench import`.

It may import what `milbench.store` may import.
"""
