"""Redis: the database, connections, Sentinel, scripts and their calls, the embedded server."""
