"""How gradients become steps: optimisers, schedules of the learning rate, rules of clipping."""
