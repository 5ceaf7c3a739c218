"""Whether workers are healthy, as probes ask. Nothing of this is imported unless a worker has to tell."""
