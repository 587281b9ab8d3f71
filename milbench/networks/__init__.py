"""Networks from instances to logits: the paper's convolutional ones, and a perceptron for unordered instances.

It may import `milbench.api` and `milbench._utils`.
"""
