"""A loss, a task, an optimiser and a network, as somebody outside the project would publish them."""
