"""Options and parameters, and how a command line is read."""
