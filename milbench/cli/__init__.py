"""The command line: one file a group of commands.

It may import every other room but the tests of contracts; none of them imports it.
"""
