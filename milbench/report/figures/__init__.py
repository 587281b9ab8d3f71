"""The figures of a report, drawn by matplotlib.

It may import what `milbench.report` may.
"""
