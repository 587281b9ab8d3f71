"""Contracts (`Loss`, `Task`, `Recipe`) and plain data (`Bags`, `Plan`, `Results`, `Gallery`) that all rooms share.

It may import `milbench.errors` and `milbench._utils`, and nothing here: a report gets what it needs without torch.
"""
