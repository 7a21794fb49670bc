"""Consumer groups: classic rebalances, the consumer protocol of KIP-848, committed offsets.

`coordinator` is what a broker makes; everything below it is free of sockets, logs and clocks.
"""
