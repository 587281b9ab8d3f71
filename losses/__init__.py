"""The built-in losses, one a file: `milbench.api.registry` finds each by the name of its file.

A loss may import the public names of `milbench` and `milbench.likelihood`, and what losses share from this folder.
"""
