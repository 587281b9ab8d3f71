"""Start a host, or compute one call.

What is imported has this module as __main__, so that the classes of a user's script can take that name.
"""

import sys

from milbench.processes.host import main

main(sys.argv[1], int(sys.argv[2]))
