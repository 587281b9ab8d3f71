"""Base classes of tasks that share one kind of bag: nested digits, street numbers, single images.

This package may import `milbench.networks`, `milbench.evaluation`, `milbench.data` and what these may import.
"""
