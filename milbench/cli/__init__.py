"""The command line: one file a group of commands.

It may import every other room; none of them imports it.
"""
