"""What `milbench new` copies: a loss, a network and a task, and their tests."""
