"""Long jobs that go on where they were: how far they are, and where they may be interrupted."""
