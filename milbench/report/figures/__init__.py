"""The figures of a report, drawn by matplotlib and seaborn.

It may import what `milbench.report` may.
"""
