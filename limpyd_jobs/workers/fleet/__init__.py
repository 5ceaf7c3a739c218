"""What others see of a worker, its health and its metrics, and the orders that it takes."""
