"""Limits that are known without torch, which takes seconds to import."""

EXACT_LABEL_LIMIT = 16
"""Classes; the largest label set whose likelihood is summed exactly, see `milbench.likelihood`."""
