"""What is counted, and how it is told to Prometheus. Counting is plain integers; nothing here knows a clock."""
