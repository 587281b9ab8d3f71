"""The Python interface: compute a comparison, or open one that was computed, and look at it as frames and figures.

It may import every other room, the command line too, whose requests it makes; none of them imports it.
"""
