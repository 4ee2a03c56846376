"""Who asks, what they may do, how often; and the record of what they did."""
