"""What a task, a loss and a network are: whoever writes one needs no other room.

- A task: task.py, problem.py, bags.py and recipe.py.
- A loss: loss.py.
- A network: network.py.

Everything that they need is exported by `milbench`; what users do wrong is a `milbench.UsageError`.
The other files say what surrounds these: registries, parameters and checks, and the data that pass
between rooms.

Nothing is imported here, so that a report gets what it needs without torch.
"""
