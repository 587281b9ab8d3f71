"""The contracts of tasks, losses and networks: what each of them has to provide.

- A task: task.py, problem.py, bags.py and recipe.py.
- A loss: loss.py.
- A network: network.py.

Whoever writes one of them imports all that it needs from `milbench`, and raises
`milbench.UsageError` for a mistake of the user. The other files of this package hold what surrounds
the contracts: registries, parameters, checks, and the data that other packages pass to each other.

This file imports nothing, so that a report can use the package without importing torch.
"""
