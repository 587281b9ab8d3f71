"""The built-in tasks, each in a file of its own.

`milbench.contracts.registry` finds a task by the name of its file. Files whose names begin with an
underscore hold what several tasks share.

A task may import `milbench.families` and whatever that package may import, but never training, the
store of results or reports.
"""
