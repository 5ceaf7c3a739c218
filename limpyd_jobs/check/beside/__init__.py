"""What the check looks at beside jobs, queues and errors: schedules, presences and flows."""
