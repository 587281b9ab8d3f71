"""The statistics of a report. It imports `milbench.contracts` and numerical libraries alone."""
