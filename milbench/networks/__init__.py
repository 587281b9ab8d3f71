"""Networks from instances to logits: for images, for sequences, and for sets of instances."""
