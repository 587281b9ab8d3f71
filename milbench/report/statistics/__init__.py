"""The statistics of a report. They import only `milbench.contracts` and numerical libraries."""
