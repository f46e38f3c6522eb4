"""One small file per Kafka API, named after it; `table.py` collects them, `dispatch.py` routes frames to them."""
