"""Contracts (`Loss`, `Task`, `Recipe`) and plain data (`Bags`, `Plan`, `Results`, `Gallery`) that all rooms share.

It may import `milbench.errors` and `milbench._utils`. It imports nothing here, so that a
report gets what it needs without torch.
"""
