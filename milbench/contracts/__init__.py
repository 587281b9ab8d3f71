"""What a task, a loss and a network are: whoever writes one needs no other room.

Nothing is imported here, so that a report gets what it needs without torch.
"""
