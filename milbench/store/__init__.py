"""The store of runs: everything that touches MLflow, checkpoints' folders, provenance, export and import.

It may import `milbench.api`, `milbench.errors` and `milbench._utils`.
"""
