"""Small tools without a notion of bags: files, locks, devices, images, random numbers, colours.

It may import `milbench.errors` alone.
"""
