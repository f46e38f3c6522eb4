"""Subscribers of two gateways while brokers die: nothing that was published is missed."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import httpx
import pytest

from penstock.testing import Cluster
from support.gateway_process import GatewayProcess
from support.share_member import until

WORKERS = 8


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_subscribers_survive_the_loss_of_a_broker() -> None:
    done: set[str] = set()
    refused: list[str] = []
    is_over = threading.Event()
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(nodes=3, start_timeout_s=120))
        gateways = [stack.enter_context(GatewayProcess(cluster.bootstrap_servers)) for _ in range(2)]
        clients = [stack.enter_context(httpx.Client(base_url=each.rest, timeout=90)) for each in gateways]
        topic = cluster.create_topic(partitions=6, replication_factor=3)

        def work(number: int) -> None:
            here, there = clients[number % 2], clients[(number + 1) % 2]
            while not is_over.is_set():
                answer = here.get(f"/topics/{topic}/subscribe", params={"group": "workers", "timeout": 500})
                if answer.status_code == 200:
                    message = answer.json()
                    response = there.post(f"/topics/{topic}/ack", json={"messageId": message["messageId"]})
                    if response.status_code == 200:
                        done.add(message["value"])
                elif answer.status_code not in (204, 503):
                    refused.append(answer.text)

        def publish(first: int, last: int) -> set[str]:
            values = {str(number) for number in range(first, last)}
            for value in values:
                body = {"value": value}
                until(lambda body=body: clients[0].post(f"/topics/{topic}/publish", json=body).status_code == 200)
            return values

        threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
        for thread in threads:
            thread.start()
        try:
            expected = publish(0, 60)
            until(lambda: done >= expected)
            cluster.kill(2)
            expected |= publish(60, 120)
            until(lambda: done >= expected)
            assert refused == []
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
