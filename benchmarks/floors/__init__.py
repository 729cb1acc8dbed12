"""What the same work takes without a supervisor."""
