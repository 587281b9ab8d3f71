"""Training: a spec becomes a plan of cells, a runner distributes them over processes, and a worker computes each.

It may import `milbench.store`, `milbench.networks`, `milbench.evaluation` and what these may import.
"""
