"""The soak: the demo's services under load for minutes or hours, with faults from a seed.

Memory must be flat, descriptors must be flat, and nothing may be lost. `tools/run soak --minutes n`.

| module | what it does |
|---|---|
| `plan` | what a seed means: which faults, when, to whom |
| `feeder` | the producing service: the demo's flights, over and over, at a steady rate (a process) |
| `run` | starts the cluster, the feeder and two members of the demo's handler service; disturbs, samples, stops them |
| `flatness` | whether a series of samples is flat (pure) |
| `oracle` | whether everything that was sent is handled or dead, from what is read back (pure) |

The members are the demo's (`ottla.cli.demo.service`), the accident of a broker is the demo's (`failure`), and the
members' connections go through the torture kit's proxies.
"""
