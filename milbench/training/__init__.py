"""The training of one cell: its parts, steps and epochs, its evaluation and its checkpoints."""
