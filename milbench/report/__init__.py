"""Reports: results become statistics, tables, figures and one self-contained page.

It may import `milbench.api`, `milbench.errors` and `milbench._utils`, and never torch.
"""
