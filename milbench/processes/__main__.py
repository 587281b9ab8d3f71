"""Start a host. What it imports has this module as __main__, so that a script of the user can take the name."""

from milbench.processes.host import main

main()
