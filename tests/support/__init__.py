"""Helpers that tests share: outside tools (Apache Kafka's command line, kcat) and how to find or fetch them."""
