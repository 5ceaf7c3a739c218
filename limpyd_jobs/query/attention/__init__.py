"""What needs attention in a database: incidents, the worst first, and what helps."""
