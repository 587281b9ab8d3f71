"""What `milbench new` copies: a loss, a task with and without instance truth, and their tests."""
