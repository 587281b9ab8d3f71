"""Networks from instances to logits: the paper's convolutional ones, others for sequences and unordered instances."""
