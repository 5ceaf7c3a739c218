"""Making, finding, changing and deleting records; what scripts must know of models."""
