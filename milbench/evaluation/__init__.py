"""Metrics of trained networks: of label sets, instances, boxes and strings."""
