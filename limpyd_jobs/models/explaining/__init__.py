"""What is known of one job, and why jobs do not run."""
