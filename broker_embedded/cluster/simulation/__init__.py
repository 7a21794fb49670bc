"""Seeded simulation: a whole cluster and its clients on a simulated loop, a network in memory, disks that crash."""

from broker_embedded.cluster.simulation.scenario import Scenario, draw
from broker_embedded.cluster.simulation.simulation import Simulation, SimulationOutcome
from broker_embedded.cluster.simulation.violation import InvariantViolated

__all__ = ["InvariantViolated", "Scenario", "Simulation", "SimulationOutcome", "draw"]
