"""Claims on jobs, and how they end: those of workers and of applications, and sessions that hold many."""
