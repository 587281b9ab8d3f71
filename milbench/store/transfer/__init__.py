"""Runs as one file for import into another store: `milbench export` and `milbench import`.

It may import what `milbench.store` may import.
"""
