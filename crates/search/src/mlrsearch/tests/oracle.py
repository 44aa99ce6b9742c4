# SPDX-License-Identifier: Apache-2.0
"""Runs the MLRsearch library of the document's authors on what Rust asks for: JSON in, JSON out."""

import json
import sys

from MLRsearch import (
    AbstractMeasurer,
    Config,
    MeasurementResult,
    MultipleLossRatioSearch,
    SearchGoal,
)
from MLRsearch.target_spec import TargetSpec
from MLRsearch.target_stat import TargetStat

MASK = (1 << 64) - 1


def chance(seed, index):
    """A number in [0, 1) for each seed and index (SplitMix64's mixer); the Rust side has the same."""
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return ((z ^ (z >> 31)) >> 11) / (1 << 53)


def lost(device, seed, trial, load, duration):
    """Frames offered and lost; the Rust side has the same."""
    noise = device["noise"] * (chance(seed, trial * 4) + chance(seed, trial * 4 + 1) - 1.0)
    band = device["band"] if chance(seed, trial * 4 + 2) < device["band_chance"] else 1.0
    capacity = device["capacity_pps"] * (1.0 + noise) * band
    over = max(load - capacity, 0.0)
    passed = max(min(load, capacity) - device["degrades"] * over, 0.0) * (1.0 - device["base_loss"])
    bursts = 1.0 - (1.0 - device["bursts_per_s"]) ** duration
    if chance(seed, trial * 4 + 3) < bursts:
        passed *= 0.999
    offered = int(load * duration + 0.5)
    return offered, min(max(offered - int(passed * duration + 0.5), 0), offered)


class Measurer(AbstractMeasurer):
    def __init__(self, device, seed, overhead):
        self.device, self.seed, self.overhead = device, seed, overhead
        self.trials, self.time = 0, 0.0

    def measure(self, intended_duration, intended_load):
        offered, loss = lost(self.device, self.seed, self.trials, intended_load, intended_duration)
        self.trials += 1
        self.time += intended_duration + self.overhead
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=offered,
            loss_count=loss,
            duration_with_overheads=intended_duration + self.overhead,
        )


def goal_of(goal):
    return SearchGoal(
        loss_ratio=goal["loss_ratio"],
        exceed_ratio=goal["exceed_ratio"],
        relative_width=goal["width"],
        initial_trial_duration=goal["initial_trial_duration_s"],
        final_trial_duration=goal["final_trial_duration_s"],
        duration_sum=goal["duration_sum_s"],
        fail_fast=False,
    )


def searched(job):
    goals = [goal_of(goal) for goal in job["goals"]]
    measurer = Measurer(job["device"], job["seed"], job["overhead_s"])
    config = Config(
        goals=goals,
        min_load=job["min_rate_pps"],
        max_load=job["max_rate_pps"],
        search_duration_max=1e9,
        warmup_duration=None,
    )
    found = MultipleLossRatioSearch(config=config).search(measurer=measurer, debug=lambda text: None)
    rate = lambda load: None if load is None else float(load)
    return {
        "trials": measurer.trials,
        "time_s": measurer.time,
        "goals": [
            {
                "lower": rate(found[goal].relevant_lower_bound),
                "upper": rate(found[goal].relevant_upper_bound),
                "conditional_throughput": rate(found[goal].conditional_throughput),
            }
            for goal in goals
        ],
    }


class Trial:
    """The three fields of a result that TargetStat.add() reads."""

    def __init__(self, intended, effective, loss):
        self.intended_duration, self.duration_with_overheads, self.loss_ratio = intended, effective, loss


def classified(job):
    goal = job["goal"]
    target = TargetSpec(
        loss_ratio=goal["loss_ratio"],
        exceed_ratio=goal["exceed_ratio"],
        discrete_width=None,
        trial_duration=goal["final_trial_duration_s"],
        duration_sum=goal["duration_sum_s"],
        expansion_coefficient=2,
        fail_fast=False,
        preceding=None,
    )
    stat = TargetStat(target)
    for trial in job["trials"]:
        stat.add(Trial(*trial))
    optimistic, pessimistic = stat.estimates()
    return [optimistic, pessimistic, stat.pessimistic_loss_ratio]


work = json.load(sys.stdin)
json.dump(
    {
        "searches": [searched(job) for job in work["searches"]],
        "classes": [classified(job) for job in work["classes"]],
    },
    sys.stdout,
)
