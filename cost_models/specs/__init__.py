"""The nouns of the work: model, cluster, training job, configuration."""
