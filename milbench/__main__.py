"""`python -m milbench` is `milbench`."""

from milbench.cli.main import main

main()
