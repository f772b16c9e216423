"""`python -m bench [NAME]… [--quick]`: measure, print a table, write the raw results.

`python -m bench engine` measures only the engine, into results/engine.json.
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import time
from collections.abc import Awaitable, Callable

from bench import (
    browser_timings,
    bursts,
    chaos,
    crowds,
    data_connection_queries,
    egress_overhead,
    fairness,
    first_answers,
    first_result_latency,
    fleets,
    fuzz,
    host_process,
    idleness,
    kills,
    machine_descriptions,
    many_sessions,
    memory,
    metrics,
    packages,
    page_latency,
    reports,
    restarts,
    sample_sizes,
    snapshots,
    turns,
)
from bench import output_floods as floods

_RESULTS = pathlib.Path(__file__).parent / "results"
_Run = Callable[[sample_sizes.Effort], Awaitable[list[metrics.Measure]]]
# Subjects by group; the results of a group share a file.
_GROUPS: dict[str, dict[str, _Run]] = {
    "kernels": {
        "warm": first_result_latency.run,
        "memory": memory.run,
        "many": many_sessions.run,
        "flood": floods.run,
    },
    "first_answers": {"first_answers": first_answers.run},
    "outside": {"doors": egress_overhead.run, "queries": data_connection_queries.run},
    "hosts": {"host_process": host_process.run},
    "packages": {"packages": packages.run},
    "hostility": {"fuzz": fuzz.run},
    "loads": {"bursts": bursts.run, "idleness": idleness.run, "fairness": fairness.run},
    "snapshots": {"snapshots": snapshots.run},
    "placements": {"placements": fleets.measure_placements},
    "fleet": {"fleet": fleets.simulate_fleet},
    "chaos": {"chaos": chaos.run},
    "fleet_crowd": {"fleet_crowd": chaos.run_crowd},
    "kills": {"kills": kills.run},
    "restarts": {"restarts": restarts.run},
    "conversations": {"turns": turns.run, "crowds": crowds.run, "pages": page_latency.run},
    "browser_timings": {"browser_timings": browser_timings.run},
}
# The engine's subjects, also in one table and one file; measured only on request.
_ENGINE: dict[str, _Run] = {
    "warm": first_result_latency.run,
    "snapshots": snapshots.run,
    "bursts": bursts.run,
    "host_process": host_process.run,
    "idleness": idleness.run,
}


def main() -> int:
    """Run the subjects on the command line; return 1 if `--strict` is set and a bar was missed."""
    arguments = _parse_arguments()
    effort = sample_sizes.QUICK if arguments.quick else sample_sizes.FULL
    requested_names = set(arguments.names) or set(_GROUPS)
    is_met = True
    groups = {"engine": _ENGINE} if requested_names == {"engine"} else _GROUPS
    for group, subjects in groups.items():
        selected = {
            name: run
            for name, run in subjects.items()
            if group in requested_names or name in requested_names
        }
        if not selected:
            continue
        machine = machine_descriptions.describe()
        measures = asyncio.run(_measure(selected, effort))
        # A partial run never replaces the results of a whole one.
        is_whole = selected == subjects and not arguments.quick
        path = _RESULTS / (f"{group}.json" if is_whole else f"{group}.partial.json")
        reports.write(path, machine, measures)
        print(f"Raw results: {path}")
        is_met = is_met and all(measure.is_met is not False for measure in measures)
    return 1 if arguments.strict and not is_met else 0


async def _measure(subjects: dict[str, _Run], effort: sample_sizes.Effort) -> list[metrics.Measure]:
    measures: list[metrics.Measure] = []
    for name, run in subjects.items():
        start_time = time.monotonic()
        print(f"{name} …", end=" ", flush=True)
        measures += (subject_measures := await run(effort))
        print(f"{time.monotonic() - start_time:.0f} s", flush=True)
        # Printed now, because a later subject may fail.
        reports.show(subject_measures)
    return measures


def _parse_arguments() -> argparse.Namespace:
    names = list(
        dict.fromkeys(name for group, subjects in _GROUPS.items() for name in (group, *subjects))
    )
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"of {', '.join(names)}; by default all; or engine",
    )
    parser.add_argument("--quick", action="store_true", help="measure less, for a first look")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bar was missed")
    arguments = parser.parse_args()
    if unknown_names := set(arguments.names) - {*names, "engine"}:
        parser.error(f"unknown names: {', '.join(sorted(unknown_names))}")
    return arguments


if __name__ == "__main__":
    raise SystemExit(main())
