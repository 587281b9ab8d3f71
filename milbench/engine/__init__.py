"""Training: a spec becomes cells, a runner deals them out, and a worker trains and evaluates each of them.

It may import `milbench.store`, `milbench.networks`, `milbench.evaluation` and what these may import.
"""
