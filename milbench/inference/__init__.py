"""What a trained network reads in new pictures: load a cell, predict, choose the scale, draw overlays.

It may import `milbench.engine`, `milbench.families` and what these may import.
"""
