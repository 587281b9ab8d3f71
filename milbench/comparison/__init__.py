"""The Python interface: compute a comparison, or open one that was computed, and look at it as frames and figures.

It may import launches, reports and what is below them; the command line alone imports it.
"""
