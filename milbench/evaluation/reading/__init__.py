"""Strings of digits: decoders of the probabilities of positions, and the metrics of what they read."""
