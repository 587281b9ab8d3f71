"""The built-in tasks, one file each, found by name through `milbench.api.registry`.

`extended-digits` and `extended-mnist` are nested digits, `mnist` and `cifar10` images of one thing, `mnist-bags` sets
of images, `svhn` and `house-numbers` house numbers, `sound-events`, `spoken-digits` and `sequence-bags` sequences,
`feature-bags` and `image-bags` tables of one's own; the base classes are in `milbench.families`. `synthetic-bags` is a
task of its own, of unordered instances from a known distribution.
`_paper.py` holds what several of them share of the paper.

A task may import `milbench.families` and what these may import, and never the engine, the store or reports.
"""
