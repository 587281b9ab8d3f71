"""The statistics of a report. It imports `milbench.api` and numerical libraries alone."""
