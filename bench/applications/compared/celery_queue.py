"""A work queue with Celery on Redis: each job acknowledged after it is done."""

import os

from celery import Celery

app = Celery("packers", broker=os.environ["CELERY_BROKER"])
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True, task_ignore_result=True)


@app.task(name="pack", autoretry_for=(Exception,), max_retries=3, retry_backoff=True)
def pack(job: dict) -> None:
    if job.get("broken"):
        raise ValueError("cannot be packed")


if __name__ == "__main__":
    app.worker_main(["worker", "--concurrency=8", "--pool=threads", "--loglevel=ERROR"])
