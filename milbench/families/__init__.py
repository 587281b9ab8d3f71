"""Base classes of tasks that share one kind of bag: nested digits, house numbers, single images, sequences, tables.

The modules on label sets (`label_set_prior`, `conditioned_draws`, `label_set_posterior`, `label_noise`), Gaussian
instances and their optimum are parts of which `synthetic-bags` is made.

It may import `milbench.networks`, `milbench.evaluation`, `milbench.data` and what these may import.
"""
