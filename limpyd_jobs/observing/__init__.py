"""What looks at jobs and workers from outside: instruments, tasks of integrations, the server for probes."""
