"""Base classes of tasks that share one kind of bag: nested digits, house numbers, single images, sequences, tables.

It may import `milbench.networks`, `milbench.evaluation`, `milbench.data` and what these may import.
"""
