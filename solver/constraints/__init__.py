"""The inner model of one row, one module per constraint; `build` of each adds it to the model and says what it means."""
