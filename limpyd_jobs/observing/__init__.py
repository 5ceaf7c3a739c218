"""What observers may do beside being told of events."""
