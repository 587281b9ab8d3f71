"""Start a host, or compute one call.

`host` is imported and not run itself, so that the launcher and this process know its classes by one name. This module
defines nothing: as __main__ it has the name to which the classes of a user's script belong.
"""

import sys

from milbench.processes.host import main

main(sys.argv[1], int(sys.argv[2]))
