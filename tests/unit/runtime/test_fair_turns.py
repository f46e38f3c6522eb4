"""Turns that several owners wait for."""

from __future__ import annotations

import asyncio

from penstock.runtime.fair_turns import FairTurns


def test_an_owner_with_many_waiting_does_not_delay_the_others() -> None:
    async def scenario() -> None:
        turns: FairTurns[str] = FairTurns(1)
        served: list[str] = []

        async def work(owner: str) -> None:
            async with turns.turn(owner):
                served.append(owner)
                await asyncio.sleep(0)

        flood = [asyncio.create_task(work("flood")) for _ in range(100)]
        await asyncio.sleep(0)
        await asyncio.create_task(work("other"))
        assert served.index("other") <= 4
        await asyncio.gather(*flood)
        assert not turns.is_busy

    asyncio.run(scenario())


def test_turns_are_not_lost_when_those_that_wait_are_cancelled() -> None:
    async def scenario() -> None:
        turns: FairTurns[str] = FairTurns(1)
        await turns.acquire("a")
        waiting = [asyncio.create_task(turns.acquire("b")) for _ in range(4)]
        await asyncio.sleep(0)
        assert (turns.waiting, turns.waiting_of("b")) == (4, 4)
        # Before its turn, at the very moment in which it gets it, and after it was given the turn.
        waiting[0].cancel()
        await asyncio.sleep(0)
        waiting[1].cancel()
        turns.release()
        waiting[2].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert turns.is_busy
        turns.release()
        assert not turns.is_busy
        await asyncio.wait_for(turns.acquire("c"), 1)

    asyncio.run(scenario())
