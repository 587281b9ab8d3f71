"""Networks from instances to logits: the paper's convolutional ones, others for sequences and unordered instances.

It may import `milbench.api` and `milbench._utils`.
"""
