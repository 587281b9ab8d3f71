"""Rendered house numbers in SVHN's format, for the task `house-numbers`.

It may import the rest of `milbench.data`, `milbench.errors` and `milbench._utils`.
"""
