"""What was computed: a folder for each cell, its frames, and MLflow's copy."""
