"""Training scripts that `meshwright-exec run` can launch as they are."""
