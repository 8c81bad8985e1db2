"""Pictures of a result for people: figures now."""
