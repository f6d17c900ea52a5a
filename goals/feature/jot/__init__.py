"""Notes in one JSON file."""
