"""What a worker tells of itself, and is told from afar."""
