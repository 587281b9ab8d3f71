"""What is asked: from a spec and the flags of a command to choices, cells and a plan; nothing is computed here."""
