"""Start a process that answers calls.

This module defines nothing: as __main__ it has the name to which the classes of a user's script belong.
"""

from milbench.processes.serve import main

main()
