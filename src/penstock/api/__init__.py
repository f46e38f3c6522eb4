"""One small file per Kafka API, named after it. `table.py` lists them; `dispatch.py` routes frames to them."""
