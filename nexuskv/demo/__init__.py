"""The demo: real requests, served by engine processes that share one daemon and are killed on the way."""
