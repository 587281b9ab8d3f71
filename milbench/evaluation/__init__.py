"""What a loss learnt: metrics of label sets, instances, boxes and strings, and saliency maps.

It may import `milbench.likelihood`, `milbench.api` and `milbench._utils`.
"""
