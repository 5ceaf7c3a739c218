"""What the command ``limpyd-jobs`` can do, one file each: see `limpyd_jobs.scripts.jobs`."""
