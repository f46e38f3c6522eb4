"""The command line: every case of an operation and a fault, or one of them."""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter

from enumerate.cases import FAULTS, Outcome
from enumerate.every import NAMES, enumeration_of

SHOWN = 3


def main() -> int:
    """The exit code is 1 if anything is not as promised."""
    options = _options()
    logging.basicConfig(level=logging.INFO if options.trace else logging.CRITICAL + 1)
    found = 0
    for name in [options.operation] if options.operation else NAMES:
        begun = time.perf_counter()
        enumeration = enumeration_of(name)
        if options.list:
            print(f"{name}:")
            for operation in enumeration.recorded.operations:
                print(f"  {operation.index:4} {operation}")
        if options.count:
            counted = ", ".join(f"{enumeration.count(fault)} {fault}" for fault in FAULTS)
            print(f"{name}: {len(enumeration.recorded.operations)} operations; {counted}")
            continue
        for anomaly in enumeration.undisturbed:
            found += 1
            print(f"{name}, undisturbed: {anomaly}")
        counts: Counter[str] = Counter()
        for fault in [options.fault] if options.fault else FAULTS:
            outcomes = list(enumeration.run(fault, options.index, options.variant))
            counts[fault] = len(outcomes)
            found += _show([one for one in outcomes if one.anomalies], every=options.every)
        cases = ", ".join(f"{count} {fault}" for fault, count in counts.items())
        seconds = time.perf_counter() - begun
        size = len(enumeration.recorded.operations)
        print(f"{name}: {size} operations; {cases}; {enumeration.disk_count} different disks; {seconds:.1f} s")
    return 1 if found else 0


def _show(outcomes: list[Outcome], *, every: bool) -> int:
    """Print some outcomes of each kind; returns how many there are."""
    shown: Counter[str] = Counter()
    for outcome in outcomes:
        kinds = " ".join(sorted(outcome.kinds))
        shown[kinds] += 1
        if every or shown[kinds] <= SHOWN:
            print(outcome)
    for kinds, count in shown.items():
        print(f"== {outcomes[0].case.scenario}, {outcomes[0].case.fault}: {kinds} in {count} cases")
    return len(outcomes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.enumerate", description=__doc__)
    parser.add_argument("--operation", choices=NAMES, help="the scenario (default: all)")
    parser.add_argument("--fault", choices=FAULTS, help="what goes wrong (default: everything)")
    parser.add_argument("--index", type=int, help="at this operation only")
    parser.add_argument("--variant", help="in this way only")
    parser.add_argument("--list", action="store_true", help="the operations by their numbers")
    parser.add_argument("--count", action="store_true", help="only how many cases there are")
    parser.add_argument("--every", action="store_true", help="every case that fails, not some of each kind")
    parser.add_argument("--trace", action="store_true", help="what the broker logs")
    return parser.parse_args()
