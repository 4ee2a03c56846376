"""The service: plans over HTTP, with the planner's own types."""
