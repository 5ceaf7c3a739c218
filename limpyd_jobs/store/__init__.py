"""The records, indexes, classes and connections, on top of limpyd."""
