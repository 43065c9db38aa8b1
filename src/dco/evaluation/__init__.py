"""Coverage and size on rows with known targets."""
