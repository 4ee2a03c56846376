"""The inner model of one row, one module per constraint; `build` of each adds it and says what it means."""
