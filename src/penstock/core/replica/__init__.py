"""One replica of one partition: high watermark, producer state, fetch sessions. Pure."""
