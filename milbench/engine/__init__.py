"""From a spec to folders of cells: plans, workers, training, search, MLflow."""
