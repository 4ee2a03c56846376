"""The front door: a request becomes a plan; plans are explained, exported, validated, offered at the command line."""
