"""What workers do beside their jobs."""
