"""The built-in tasks, a file each, found by name through `milbench.contracts.registry`; `_*.py` are what several share.

A task may import `milbench.families` and what these may import, and never training, the store or
reports.
"""
