"""How a worker runs one job, and records how it ended."""
