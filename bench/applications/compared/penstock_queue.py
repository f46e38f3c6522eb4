"""A work queue: more workers than partitions, each job acknowledged alone."""

import penstock

app = penstock.App("packers")


@app.subscribe("jobs", share=True, concurrency=8, retries=3)
async def pack(job: dict) -> None:
    if job.get("broken"):
        raise ValueError("cannot be packed")


if __name__ == "__main__":
    app.run()
