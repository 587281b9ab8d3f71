"""Tables of bags: a row an instance, or a row a bag with a file of features, an image or a sequence.

It imports nothing of bags as tensors: tasks make these.
"""
