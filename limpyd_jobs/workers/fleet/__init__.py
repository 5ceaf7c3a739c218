"""What a worker reports of itself, and the orders that it gets from afar."""
