"""Training: a spec becomes a plan of cells, joblib distributes them over processes, and a worker computes each.

It may import `milbench.networks`, `milbench.evaluation` and what these may import.
"""
