"""`python -m milbench` is `milbench`."""

from milbench.cli import main

main()
