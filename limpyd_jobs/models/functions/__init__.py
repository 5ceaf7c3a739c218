"""Functions as jobs: what is made of them, and how their jobs are added."""
