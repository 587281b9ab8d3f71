"""Running many cells: the launch, the processes that compute cells, the display of progress."""
