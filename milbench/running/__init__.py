"""Many cells: a launch, the processes that compute them, and the display of their progress."""
