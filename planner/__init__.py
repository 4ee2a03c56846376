"""The front door: a request becomes a plan; plans are explained, exported, validated and offered at the command line."""
