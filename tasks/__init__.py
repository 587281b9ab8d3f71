"""The built-in tasks: one file an entry, found by `milbench.api.registry`."""
