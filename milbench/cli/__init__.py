"""The command line: one file for each command or group of commands."""
