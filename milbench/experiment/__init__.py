"""From a spec and the flags of a command to a plan of cells. Nothing is trained here."""
