"""Topics and their partitions: create, grow, describe, delete, restore."""
