"""What the demo and the benches share: a private daemon, and a witness of where memory lies."""
