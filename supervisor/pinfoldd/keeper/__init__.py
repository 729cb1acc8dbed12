"""The keeper: owns every process group, and outlives the daemon that asked for it."""
