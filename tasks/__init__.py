"""The built-in tasks, one file each, found by name through `milbench.api.registry`; `_*.py` are what several share.

A task may import `milbench.families` and what these may import, and never the engine, the store or reports.
"""
