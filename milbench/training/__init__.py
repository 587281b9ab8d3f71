"""One cell: its parts, its steps and epochs, its evaluation and its checkpoints."""
