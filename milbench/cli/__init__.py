"""The command line: one file a group of commands.

It may import every other room but `comparison`, which is the same in Python and alone imports it.
"""
