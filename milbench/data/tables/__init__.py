"""Tables of bags: a row an instance, a row a bag with a file of features, or a row an image.

It imports nothing of bags as tensors: tasks make these.
"""
