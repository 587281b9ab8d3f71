"""Benchmarks of milbench itself: speed and memory, measured side by side.

It may import the engine and what is below it. `milbench bench` measures by it, and prints.
"""
