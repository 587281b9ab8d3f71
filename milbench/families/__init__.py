"""Base classes of tasks that share one kind of bag, and the parts of which `synthetic-bags` is made.

It may import `milbench.networks`, `milbench.evaluation`, `milbench.data` and what these may import.
"""
