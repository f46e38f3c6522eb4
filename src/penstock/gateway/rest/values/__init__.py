"""Keys and values as JSON and as bytes: with schemas, for people and for programs."""
