"""What `milbench new` copies: a loss, a task with and without instance truth, and their tests; each runs as it is.

It may import the public names of `milbench` and `milbench.testing`, and nothing imports it.
"""
