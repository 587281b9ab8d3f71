"""Start a process that answers calls.

This module defines nothing: it runs as `__main__`, the module to which the classes of a user's
script belong.
"""

from milbench.processes.serve import main

main()
