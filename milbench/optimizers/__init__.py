"""How gradients become steps: optimisers by name, schedules of the learning rate, and rules of clipping."""
