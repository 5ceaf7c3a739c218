"""What other processes learn of jobs: their changes, end, result, progress, log and history."""
