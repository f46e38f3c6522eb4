"""Power cuts for real broker processes: what they wrote to their data directory and did not sync may be gone.

`layer.c` is loaded into the process and notes what it does to its files; `disk` knows from these notes what is durable,
and writes what a power cut leaves; `machine` starts brokers with the layer and cuts their power.
"""
