"""Quantisation: numbers into the element types that quantised pages hold, and back.

Gathers the encoders. Each states the error it may make. Knows nothing of daemons and clients.
"""
