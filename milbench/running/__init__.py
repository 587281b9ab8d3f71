"""Many cells: a launch, the processes that compute them, and what is shown meanwhile."""
