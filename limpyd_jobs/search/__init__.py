"""Finding records by what is in them, and acting on all that match."""
