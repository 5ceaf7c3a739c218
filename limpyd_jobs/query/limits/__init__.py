"""The limits of jobs: who holds their slots, who waits for them, and other numbers for them, without a deploy."""
