"""How a worker comes by jobs: from waiting lists to deliveries."""
