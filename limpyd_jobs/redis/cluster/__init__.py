"""Redis Cluster: the slot of a database, the server that has it, and what to do while it moves."""
