"""What each API asks the authorizer, where there is one: `table` has all of them, by API.

A guard stands before the handler of its API. It refuses a request, or takes out of it what the client may not do, lets
the handler do the rest, and puts what it took out back into the answer, refused. So handlers know nothing of ACLs (but
for Fetch, whose partitions a session may remember), and a broker without an authorizer does nothing of this.

A request is judged on the broker that it came to, also if the controller on another one carries it out. What brokers
ask each other, over connections that no client is told of, nobody judges.
"""
