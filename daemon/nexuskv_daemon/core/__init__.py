"""The daemon's pure core: what is stored, who may read it, what goes when room is needed.

No I/O, no clock, no randomness: `Engine.handle` takes a request and answers effects, which the shells around it
perform.
"""
