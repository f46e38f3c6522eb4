"""One small file per Kafka API, named after it, in packages by subject.

`table.py` collects them, `dispatch.py` routes frames to them.
"""
