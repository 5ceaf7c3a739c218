"""The process of a worker, and several processes."""
