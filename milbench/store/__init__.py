"""The store of runs: MLflow, the folder of a workspace, provenance, export and import.

It may import `milbench.api`, `milbench.errors` and `milbench._utils`.
"""
