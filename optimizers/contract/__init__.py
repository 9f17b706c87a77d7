"""What a definition is: declarations, trees, schedules, kernel names. No framework."""
