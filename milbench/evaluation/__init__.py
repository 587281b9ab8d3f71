"""What a loss learnt: metrics of label sets, instances, boxes and strings."""
