"""An application as people have built them on redis-limpyd-jobs 2: more ways to use it than the documents show."""
