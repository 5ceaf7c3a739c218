"""How the records, indexes, classes and connections of limpyd are met."""
