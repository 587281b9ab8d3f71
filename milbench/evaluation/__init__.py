"""Metrics of trained losses: of label sets, instances, boxes and strings."""
