"""The torture test: an ETL chain of three services on an embedded cluster, faults on a seed, and an oracle.

plan.py      what a seed means: how many records, which of them fail and how, which faults and when
proxy.py     a TCP proxy per member: its connections can be cut, stalled, or cut with the answers swallowed
service.py   one service of the chain, run by `python -m ottla run torture_kit.service:app`, in either shell
journal.py   what each member handled, written so that SIGKILL loses no line
members.py   the members as child processes
round.py     one round: start, feed, disturb, wait until everything is accounted for, stop, judge
oracle.py    the judge: order per key, nothing lost, nothing sent twice, duplicates only inside the documented bound
__main__.py  the long run: rounds with rising seeds until the time is over
"""
