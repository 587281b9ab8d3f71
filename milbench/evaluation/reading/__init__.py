"""Strings of digits: decoders that turn the probabilities of positions into text, and the metrics of what they read.

It may import the rest of `milbench.evaluation`, `milbench.likelihood`, `milbench.api` and `milbench._utils`.
"""
