"""Base classes of tasks with bags of the same kind, and the parts of the task `synthetic-bags`.

This package may import `milbench.networks`, `milbench.evaluation`, `milbench.data` and what these
may import.
"""
