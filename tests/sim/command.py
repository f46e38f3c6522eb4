"""The simulator's command line: many seeds, or one of them told as a story."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from sim.schedule import (
    Plan,
    draw,
    draw_failing,
    draw_moving,
    draw_operated,
    draw_shared,
    draw_stalled,
    draw_tiered,
    draw_transactional,
)
from sim.schedule_recovery import draw_recovery
from sim.schedule_storage import draw_storage
from sim.shape import DIMENSIONS, without_dimensions
from sim.shrink import shrink
from sim.simulate import Outcome, simulate
from sim.world import silence_logs

SHRINK_RUNS_MAX = 60
# How often long runs say how far they are.
PROGRESS_SEEDS = 250

# Runs of a special kind, by the option that asks for them.
KINDS: dict[str, Callable[[int, int], Plan]] = {
    "transactions": draw_transactional,
    "shares": draw_shared,
    "tier": draw_tiered,
    "moves": draw_moving,
    "operated": draw_operated,
    "disks": draw_failing,
    "stalls": draw_stalled,
    "storage": draw_storage,
    "recovery": draw_recovery,
}


def main() -> int:
    """Run seeds; the exit code is 1 when any of them failed."""
    options = _options()
    if options.seed is not None:
        return _run_one(options)
    return _run_many(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run (default: 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes, however many seeds that were")
    parser.add_argument("--seed", type=int, help="run this one seed and tell its story")
    parser.add_argument("--trace", action="store_true", help="with --seed: also what nodes log")
    parser.add_argument("--only", help="with --seed: the numbers of the faults to keep, such as 0,3")
    parser.add_argument("--transactions", action="store_true", help="with transactional clients")
    parser.add_argument("--shares", action="store_true", help="with workers of a share group")
    parser.add_argument("--tier", action="store_true", help="with old segments in object storage")
    parser.add_argument("--moves", action="store_true", help="with two data directories a node, and moves between them")
    parser.add_argument("--operated", action="store_true", help="with an operator who changes settings, replicas, ...")
    parser.add_argument("--disks", action="store_true", help="with a disk that fails and loses its last writes")
    parser.add_argument("--stalls", action="store_true", help="with a disk that stalls for longer than all timeouts")
    parser.add_argument("--storage", action="store_true", help="with errors of single operations, and damaged files")
    parser.add_argument("--recovery", action="store_true", help="with truncations and loads that are interrupted")
    parser.add_argument("--nodes", type=int, default=3, help="brokers of a cluster (default: 3)")
    parser.add_argument(
        "--without",
        default="",
        help=f"kinds of faults to leave out, such as power,clock, and of {', '.join(DIMENSIONS)}",
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes to spread seeds over")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failing seed")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for the shortest story of a failure")
    return parser.parse_args()


def say(text: str) -> None:
    """A line of progress on the terminal."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# Many seeds.


def _run_many(options: argparse.Namespace) -> int:
    began = time.monotonic()
    failed: list[Outcome] = []
    count = acknowledged = 0
    virtual_s = 0.0
    for outcome in _outcomes(options):
        count += 1
        virtual_s += outcome.virtual_s
        acknowledged += outcome.acknowledged
        if outcome.anomalies:
            failed.append(outcome)
            say(f"seed {outcome.plan.seed} FAILED: {outcome.anomalies[0]}")
            if not options.keep_going:
                break
        if count % PROGRESS_SEEDS == 0:
            say(f"{count} seeds, up to {outcome.plan.seed}, {len(failed)} failed")
        if options.minutes is not None and time.monotonic() - began > options.minutes * 60:
            break
    real_s = time.monotonic() - began
    say(
        f"{count} seeds in {real_s:.1f} s ({count / real_s:.1f} a second), {virtual_s:.0f} s of virtual time, "
        f"{acknowledged} records acknowledged, {len(failed)} failed"
    )
    if failed:
        _explain(failed[0], options)
    return 1 if failed else 0


def _outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    seeds = range(options.first, options.first + options.seeds)
    work = [(seed, options) for seed in seeds]
    if options.processes == 1:
        silence_logs()
        yield from map(_run_seed, work)
        return
    context = multiprocessing.get_context("fork")
    with context.Pool(options.processes, initializer=silence_logs) as pool:
        yield from pool.imap(_run_seed, work)


def _run_seed(work: tuple[int, argparse.Namespace]) -> Outcome:
    return simulate(_plan(*work))


def _plan(seed: int, options: argparse.Namespace) -> Plan:
    plan = _drawn(options)(seed, options.nodes)
    unwanted = options.without.split(",")
    faults = tuple(fault for fault in plan.faults if fault.kind not in unwanted)
    return replace(plan, faults=faults, shape=without_dimensions(plan.shape, unwanted))


def _drawn(options: argparse.Namespace) -> Callable[[int, int], Plan]:
    return next((draw_kind for kind, draw_kind in KINDS.items() if getattr(options, kind)), draw)


# One seed.


def _run_one(options: argparse.Namespace) -> int:
    silence_logs()
    if options.trace:
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
        for name in ("penstock", "sim"):
            logging.getLogger(name).setLevel(logging.INFO)
    plan = _plan(options.seed, options)
    if options.only is not None:
        kept = [int(number) for number in options.only.split(",") if number]
        plan = keep(plan, kept)
    outcome = simulate(plan, say)
    say(
        f"\n{outcome.virtual_s:.1f} s of virtual time in {outcome.real_s:.2f} s, {outcome.steps} steps, "
        f"{outcome.acknowledged} records acknowledged, trace {outcome.trace_hash:08x}"
    )
    for anomaly in outcome.anomalies:
        say(str(anomaly))
    return 1 if outcome.anomalies else 0


def keep(plan: Plan, numbers: list[int]) -> Plan:
    """The plan with some of its faults only."""
    faults = tuple(fault for number, fault in enumerate(plan.faults) if number in numbers)
    return replace(plan, faults=faults)


def _explain(outcome: Outcome, options: argparse.Namespace) -> None:
    """Print the shortest story that still fails, and how to see it again."""
    silence_logs()
    plan = outcome.plan
    numbers = list(range(len(plan.faults)))
    if not options.no_shrink:
        numbers = shrink(
            numbers,
            lambda kept: bool(simulate(keep(plan, kept)).kinds & outcome.kinds),
            SHRINK_RUNS_MAX,
        )
    say(f"\nseed {plan.seed}, {plan.shape}, fails with these faults:")
    for number in numbers:
        say(f"  {number}: {plan.faults[number]}")
    for anomaly in simulate(keep(plan, numbers)).anomalies:
        say(f"  {anomaly}")
    nodes = next((f" --{kind}" for kind in KINDS if getattr(options, kind)), "")
    nodes += "" if options.nodes == 3 else f" --nodes {options.nodes}"
    nodes += f" --without {options.without}" if options.without else ""
    only = "" if len(numbers) == len(plan.faults) else f" --only {','.join(map(str, numbers)) or ','}"
    say(f"\nReplay it with:\n  python -m tests.sim --seed {plan.seed}{nodes}{only} --trace")
