"""The rows of the property table, one module a theme. Names, types, defaults and limits are those of Kafka 4.1."""
