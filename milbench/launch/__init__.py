"""A launch: what was asked for, the plan that it makes, the cells that are computed, and what is shown meanwhile.

The command line and the Python interface start it alike. It may import the engine, the store and what is below them.
"""
