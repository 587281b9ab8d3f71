"""The Python interface: compute a comparison, or open one that was computed, and look at it as frames and figures.

It may import every other room but the command line, which alone imports it.
"""
