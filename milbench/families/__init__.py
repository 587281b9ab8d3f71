"""Base classes of tasks with bags of the same kind, and the parts of the task `synthetic-bags`.

This package may import `milbench.networks`, `milbench.evaluation`, `milbench.data`, and all that
these packages may import.
"""
