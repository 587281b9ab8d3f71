"""The results on disk: a folder for each cell, tables made from the folders, and MLflow's copy."""
