"""Rendered street numbers in SVHN's format, for the task `house-numbers`.

This package may import the rest of `milbench.data`, `milbench.errors` and `milbench._utils`.
"""
