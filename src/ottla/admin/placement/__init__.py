"""Where replicas should be: planners that move bytes, not counts, and what carries their plans out.

`modelling` makes a model of facts; `planners` make plans of a model; `goals` says what can be reached;
`schedule` orders moves so that no disk is ever too full. All of that is pure.
"""
