"""Base classes of tasks whose bags are alike, and the parts of the task `synthetic-bags`.

This package may import `milbench.networks`, `milbench.evaluation`, `milbench.data` and what these
may import.
"""
