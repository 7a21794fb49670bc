"""Seeded simulation: a whole cluster and its clients on a simulated loop, a network in memory, disks that crash."""

from broker_embedded.cluster.simulation.scenario import Scenario as Scenario
from broker_embedded.cluster.simulation.scenario import draw as draw
from broker_embedded.cluster.simulation.simulation import Simulation as Simulation
from broker_embedded.cluster.simulation.simulation import SimulationOutcome as SimulationOutcome
from broker_embedded.cluster.simulation.violation import InvariantViolated as InvariantViolated
